"""Step-level credit inside stock TRL.

`StepCreditTrainer` is a GRPOTrainer whose advantages are one value a turn.

Reading order: `trainer` (what is overridden, and why), `settings` (the keys), `turns` (TRL's completions to
turns), `listening` (what an environment says after each tool call), `states` (hidden states of turns),
`guards` (what is refused before the first step), `versions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bipace.integrations.trl.trainer import StepCreditTrainer

__all__ = ["StepCreditTrainer"]


def __getattr__(name: str) -> Any:
    """The trainer is imported where it is asked for: `versions` must be readable without TRL."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bipace.integrations.trl import trainer

    return getattr(trainer, name)
