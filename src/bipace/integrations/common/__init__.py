"""The common room: what every adapter to another engine shares. Nothing here imports an engine.

Reading order: `rows` (an engine's model calls to the core's table), `estimator` (the table to one value a
call, with the metrics of docs/metrics.md), `spread` (those values in the engine's own shape), `settings` (the
typed keys a user may set), `guards` and `preflight` (what is refused before a job starts), `capture` (hidden
states out of a forward that runs anyway). How to write the next adapter: docs/adapters.md.
"""
