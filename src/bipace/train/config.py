"""The configuration of a run: the sections of `bipace.config` in one tree, its files and presets.

A TOML file holds only what differs; the command line overrides it with `section.key=value`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, Field, model_validator

from bipace.config import (
    ActorConfig,
    ConfigError,
    EnvConfig,
    FeatureConfig,
    PromptConfig,
    RolloutConfig,
    RunConfig,
    Settings,
    UpdateConfig,
    modern,
    read,
    schema_of,
)
from bipace.config.reading import modern_key, options_schema
from bipace.core.estimators import recipe_options
from bipace.core.names import nearest
from bipace.files import write_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]  (3.10 only)

__all__ = [
    "Config",
    "ConfigError",
    "UpdateConfig",
    "add_override",
    "config_from",
    "config_schema",
    "describe_config",
    "load_config",
    "read_tree",
    "value_of",
    "write_config",
]


class Config(Settings):
    """A whole run."""

    env: EnvConfig = Field(default_factory=EnvConfig)
    actor: ActorConfig = Field(default_factory=ActorConfig)
    prompt: PromptConfig = Field(default_factory=PromptConfig)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    features: FeatureConfig = Field(default_factory=FeatureConfig)
    update: UpdateConfig = Field(default_factory=UpdateConfig)
    run: RunConfig = Field(default_factory=RunConfig)

    def notes(self) -> list[str]:
        """Sentences about what is legal and probably not meant.

        A layer without its radius, or a radius without.
        """
        default = FeatureConfig.model_fields["layer"].default
        layer, eps = self.features.layer, self.credit.get("eps")
        named = layer != default
        if not self.captures or "eps" not in recipe_options(self.estimator):
            return []
        if eps == "calibrate":
            return (
                [f"features.layer={layer} is not read: credit.eps=calibrate chooses the layer too"]
                if named
                else []
            )
        if isinstance(eps, str):  # chosen on whatever layer is read
            return []
        if named == (eps is not None):
            return []
        given, other = (
            (f"features.layer={layer}", "credit.eps")
            if named
            else (f"credit.eps={eps}", f"features.layer ({default})")
        )
        return [
            f"{given} beside the default {other}: a radius belongs to the layer it was chosen at. Give both "
            "(the paper's pairs: -12 with 0.05 for 1.5B, -8 with 0.10 for 7B), or credit.eps=calibrate"
        ]

    @model_validator(mode="after")
    def _usable(self) -> Config:
        made = self.recipe()
        if self.rollout.group_size == 1 and made.compares_steps:
            raise ValueError(
                f"rollout.group_size: 1 with the step-level recipe {self.estimator!r}: in a group of one "
                "trajectory a step has no peers and every advantage would be 0; use rollout.group_size=8"
            )
        if self.rollout.engine == "vllm" and self.features.source == "rollout":
            raise ValueError(
                "features.source: 'rollout' with rollout.engine=vllm: vLLM gives no hidden states, and its "
                "probabilities are not the actor's to the last digit; set features.source=shared"
            )
        return self


PRESETS = Path(__file__).resolve().parent.parent / "assets" / "presets"


def load_config(path: Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Defaults, then the TOML file, then `section.key=value` overrides.

    A bare name ("demo") that is no file stands for the preset of that name in the package. Where an override
    names another estimator than the file's, those of the file's credit options that it does not take are left
    out, so that a preset runs with any recipe.

    Raises:
        ConfigError: unreadable file, unknown key (with the nearest known one), or a value out of range.
    """
    tree = {} if path is None else read_tree(path)
    estimator, overrides = tree.get("estimator", "bipace"), tuple(overrides)
    for override in overrides:
        if override.startswith("estimator="):
            add_override(tree, override)
    if tree.get("estimator", "bipace") != estimator and isinstance(tree.get("credit"), dict):
        tree["credit"] = _credit_of(tree["estimator"], tree["credit"])
    for override in overrides:
        add_override(tree, override)
    return config_from(tree)


def _credit_of(estimator: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        taken = recipe_options(estimator)
    except (ValueError, TypeError):  # no such recipe: the check of the whole tree says so better
        return {}
    return {name: value for name, value in options.items() if name in taken}


def read_tree(path: Path) -> dict[str, Any]:
    """The TOML file, or the shipped preset of that name, as it stands.

    Raises:
        ConfigError: no such file or preset, or not TOML.
    """
    shipped = PRESETS / f"{path}.toml"
    path = shipped if not path.exists() and shipped.is_file() else path
    try:
        return modern(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        known = sorted(preset.stem for preset in PRESETS.glob("*.toml"))
        near = nearest(str(path), known)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ConfigError(
            f"config: no file {path} and no preset of that name{hint} (shipped: {', '.join(known)})"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config: {path} is not TOML: {error}") from error


def config_from(tree: Mapping[str, Any]) -> Config:
    """The configuration of a tree that holds only differences.

    Raises:
        ConfigError: an unknown key (with the nearest known one), a value of another type or out of range.
    """
    return read(Config, tree)


def write_config(config: Config, path: Path) -> None:
    """The resolved configuration as TOML (None entries are left out: they are the default)."""
    write_text(path, tomli_w.dumps(config.model_dump(mode="json", exclude_none=True)))


def add_override(tree: dict[str, Any], override: str) -> None:
    """Put one `section.key=value` into the tree.

    Raises:
        ConfigError: no "=", or a section that is a value.
    """
    key, sign, text = override.partition("=")
    if not sign or not key:
        raise ConfigError(f"override {override!r}: expected section.key=value, e.g. env.max_steps=12")
    named = modern_key(key, _value(text))
    if named is None:
        return
    key = named
    *sections, leaf = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"override {override!r}: {section} is a value, not a section")
    tree[leaf] = _value(text)


def _value(text: str) -> Any:
    """A TOML value where the text is one, else the text itself (so that names need no quotes)."""
    if text.lower() in ("none", "null"):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def describe_config(config: Config) -> list[tuple[str, str, str]]:
    """Every key with its value and meaning, in order."""
    rows: list[tuple[str, str, str]] = []
    for name, field in Config.model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            rows += [
                (f"{name}.{key}", str(getattr(value, key)), inner.description or "")
                for key, inner in type(value).model_fields.items()
            ]
        else:
            rows.append((name, str(value), field.description or ""))
    return rows


def config_schema(estimator: str = "bipace") -> list[dict[str, Any]]:
    """Every key with type, default and meaning, an estimator's options among them (`bipace config --json`).

    Raises:
        ValueError: an unknown estimator.
    """
    options = options_schema(estimator)
    rows = schema_of(Config)
    place = next(i for i, row in enumerate(rows) if row["key"] == "credit")
    return [*rows[: place + 1], *options, *rows[place + 1 :]]


def value_of(config: Config, row: Mapping[str, Any]) -> Any:
    """The value that a configuration has for a row of `config_schema`, as in JSON.

    The default where none is set.
    """
    section, _, leaf = str(row["key"]).partition(".")
    found = config.model_dump(mode="json")[section]
    return found.get(leaf, row["default"]) if leaf else found
