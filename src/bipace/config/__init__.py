"""The one configuration schema: what `bipace train`, the adapters, `bipace credit` and `bipace analyze` read.

`sections` holds every key with its type, its one default and its meaning; `settings` the sections that all
front ends share; `reading` takes a tree of plain values to them, strictly, and knows the former names of
keys. A run's whole configuration, with its files and presets, is `bipace.train.config`.
"""

from bipace.config.reading import ConfigError, modern, read, schema_of
from bipace.config.sections import (
    PAIRS,
    ActorConfig,
    EnvConfig,
    EnvSettings,
    FeatureConfig,
    FeatureSettings,
    PromptConfig,
    PromptSettings,
    RolloutConfig,
    RunConfig,
    Section,
    UpdateConfig,
    UpdateSettings,
)
from bipace.config.settings import CreditSettings, Settings

__all__ = [
    "PAIRS",
    "ActorConfig",
    "ConfigError",
    "CreditSettings",
    "EnvConfig",
    "EnvSettings",
    "FeatureConfig",
    "FeatureSettings",
    "PromptConfig",
    "PromptSettings",
    "RolloutConfig",
    "RunConfig",
    "Section",
    "Settings",
    "UpdateConfig",
    "UpdateSettings",
    "modern",
    "read",
    "schema_of",
]
