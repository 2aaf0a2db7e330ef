"""BiPACE inside stock verl: a plug-in, not a fork.

`plugin` is what verl loads (VERL_USE_EXTERNAL_MODULES=bipace.integrations.verl.plugin, or the entry point in
the group `verl.plugins`). What needs no verl is in `bipace.integrations.common`. Reading order here:
`settings` (the section `bipace` of verl's configuration), `episode` and `agent_loop` (one row per model
call), `engine` (the hidden state at the last prompt token), `rows` (what each row is), `estimator` and
`trainer` (rows to advantages), `guards` and `preflight`.
"""
