"""What every front end reads: a recipe with its options and features.

And, where it plays episodes, where and how.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from bipace.config.reading import check_options
from bipace.config.sections import EnvSettings, FeatureSettings, PromptSettings, Section, UpdateSettings
from bipace.core.advantages import Recipe
from bipace.core.estimators import RECIPES, recipe

__all__ = ["CreditSettings", "Settings"]


class CreditSettings(Section):
    """The recipe, its options, the features and actions it compares, the penalty: what an adapter reads.

    Examples:
        >>> from bipace.integrations.common.settings import CreditSettings
        >>> settings = CreditSettings(estimator="gigpo", credit={"w": 0.5})
        >>> settings.recipe().name, settings.captures, CreditSettings(estimator="bipace").captures
        ('gigpo', False, True)
    """

    estimator: str = Field(
        default="bipace", description=f"{', '.join(RECIPES)}, module:function or path/to/file.py:function"
    )
    credit: dict[str, Any] = Field(
        default_factory=dict, description="options of the estimator, e.g. credit.eps=0.05"
    )
    features: FeatureSettings = Field(default_factory=FeatureSettings)
    update: UpdateSettings = Field(default_factory=UpdateSettings)

    def recipe(self) -> Recipe:
        """The estimator with its options."""
        return recipe(self.estimator, **self.credit)

    @property
    def captures(self) -> bool:
        """True where the recipe compares hidden states, so that they must be captured."""
        return "features" in self.recipe().needs

    @model_validator(mode="after")
    def _a_recipe(self) -> CreditSettings:
        check_options(self.estimator, self.credit)
        self.recipe()
        eps = self.credit.get("eps")
        if isinstance(eps, (int, float)) and not 0 <= eps <= 2:
            raise ValueError(f"credit.eps: {eps}, expected a cosine distance in [0, 2]")
        return self


class Settings(CreditSettings):
    """Those of a front end that also plays the episodes: the environment and the prompt beside them.

    Examples:
        >>> from bipace.integrations.common.settings import Settings
        >>> Settings().env.suite
        'textcraft'
    """

    env: EnvSettings = Field(default_factory=EnvSettings)
    prompt: PromptSettings = Field(default_factory=PromptSettings)
