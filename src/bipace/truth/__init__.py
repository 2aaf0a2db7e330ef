"""Credit measured against the truth.

How close are a recipe's advantages to the advantages of the policy itself?

Reading order: truth.py (what is known), rerolls.py and worlds.py (how it comes to be known), score.py (how a
recipe is judged by it), candidates.py (which recipes), report.py (table and picture).
"""
