"""BiPACE inside stock verl: a plug-in, not a fork.

`plugin` is what verl loads (VERL_USE_EXTERNAL_MODULES=bipace.integrations.verl.plugin, or the entry point in the group
`verl.plugins`). Reading order: `settings` (the section `bipace` of verl's configuration), `episode` and `agent_loop`
(one row per model call), `capture` and `engine` (the hidden state at the last prompt token), `rows` (verl's rows to the
core's table), `estimator` and `trainer` (the table to advantages), `guards`, `preflight`.
"""
