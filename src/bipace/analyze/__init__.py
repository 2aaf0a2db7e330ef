"""What the rollouts you already have say about credit: `bipace analyze`, and the same as a function.

    from bipace.analyze import analyze

    found = analyze("results.jsonl")
    for finding in found.findings: print(finding.severity, finding.title)
    found.write_page("credit.html")

Reading order: `records.py` (what a file becomes), `formats.py` (which file it is), `table.py`, `credit.py`,
`findings.py`, `analysis.py`.
"""

from bipace.analyze.analysis import Analysis, Options, analyze
from bipace.analyze.evidence import Finding
from bipace.analyze.formats import FORMATS, NotTrajectories
from bipace.analyze.reading import read_file

__all__ = ["FORMATS", "Analysis", "Finding", "NotTrajectories", "Options", "analyze", "read_file"]
