# pyright: reportMissingImports=false
# verl lives in an environment of its own (it wants another transformers), where `make test-engines` runs
# this.
"""What verl loads in every process: VERL_USE_EXTERNAL_MODULES=bipace.integrations.verl.plugin.

Importing this registers the engine, the estimators, the agent loop and the trainer. It changes nothing in
verl.
"""

from __future__ import annotations

from importlib.metadata import version

from bipace.integrations.verl.guards import check_version

check_version(version("verl"))

# Only a verl of the right version has the names these import.
from bipace.integrations.verl import agent_loop, engine, estimator, trainer  # noqa: E402  (after the version check)

__all__ = ["agent_loop", "engine", "estimator", "trainer"]
