"""From a tree of plain values to a section: strictly, with one sentence for whatever is wrong.

A value of another type is refused and never converted: "no" is not false, "last" is no layer, "0.1" is no
number. Former names of keys are understood for one release, with a warning that says the new name.
"""

from __future__ import annotations

import inspect
import types
import typing
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from bipace.core.estimators import RECIPES, recipe_options
from bipace.core.names import current_name, nearest, with_current_names
from bipace.core.plugins import load_attribute

__all__ = [
    "REMOVED",
    "RENAMED",
    "ConfigError",
    "check_options",
    "modern",
    "modern_key",
    "options_schema",
    "read",
    "schema_of",
]

Made = TypeVar("Made", bound=BaseModel)

RENAMED = {"env.success_reward": "env.reward_scale", "rollout.wave": "rollout.parallel"}
"""Former name -> name, for one release."""

REMOVED: dict[str, object] = {"update.max_skipped": 3, "update.dual_clip": 3.0}
"""Keys that nobody should turn, removed: the value that always holds."""


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the key, the value and the way out."""


def read(kind: type[Made], tree: Any, where: str = "") -> Made:
    """The section, or the whole configuration, of a tree that holds only differences.

    Args:
        kind: a section.
        tree: plain values; None gives the defaults.
        where: what stands before a key in messages, e.g. "bipace".

    Raises:
        ConfigError: an unknown key (with the nearest known one), a value of another type or out of range, or
            what the section itself refuses.
    """
    values = modern({} if tree is None else tree, where)
    _refuse_unknown(values, kind, where)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        path = [str(part) for part in first["loc"] if not isinstance(part, int)]
        key = ".".join([where, *_within(kind, path)]).strip(".")
        if not path:
            raise ConfigError(_said(first)) from error
        raise ConfigError(f"{key}: {first['input']!r}, expected {_said(first)}") from error


def modern(tree: Any, where: str = "") -> Any:
    """The tree under the names of today and without removed keys, each change with a warning.

    Raises:
        ConfigError: a key under both names; a removed key with another value than the one that holds.
    """
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{where or 'configuration'}: {tree!r}, expected a section with keys")
    return {
        str(name): _modern_section(str(name), part) if isinstance(part, Mapping) else part
        for name, part in tree.items()
    }


def _modern_section(section: str, part: Mapping[Any, Any]) -> dict[str, Any]:
    full = {f"{section}.{leaf}": value for leaf, value in part.items()}
    kept = {key: value for key, value in full.items() if not _removed(key, value)}
    try:
        named = with_current_names(kept, RENAMED)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return {key.partition(".")[2]: value for key, value in named.items()}


def modern_key(key: str, value: Any = None) -> str | None:
    """A key's name today, with a warning where it is a former one; None for a key that was removed.

    Raises:
        ConfigError: a removed key with another value than the one that holds.
    """
    return None if _removed(key, value) else current_name(key, RENAMED)


def _removed(key: str, value: Any) -> bool:
    if key not in REMOVED:
        return False
    holds = REMOVED[key]
    if value != holds:
        raise ConfigError(f"{key}: {value!r}; this key was removed, {holds!r} always holds; leave it out")
    warnings.warn(f"{key} was removed ({holds!r} always holds); leave it out", FutureWarning, 4)
    return True


def check_options(estimator: str, options: Mapping[str, Any], where: str = "credit") -> None:
    """Refuse options of another type than the recipe's function asks for.

    Unknown options and ranges are the recipe's own business, and so is what has no type.

    Raises:
        ConfigError: naming option, value and what is expected.
        ValueError: an unknown recipe.
    """
    hints = option_types(estimator)
    for name, value in options.items():
        if name not in hints:
            continue
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(hints[name])
        except PydanticUserError:  # a type that only the user's own code can judge
            continue
        try:
            adapter.validate_python(value, strict=True)
        except ValidationError as error:
            expected = " or ".join(dict.fromkeys(_said(entry) for entry in error.errors()))
            raise ConfigError(f"{where}.{name}: {value!r}, expected {expected}") from error


def option_types(estimator: str) -> dict[str, Any]:
    """Option -> type, of those options of a recipe that have one. Raises ValueError for an unknown recipe."""
    known = recipe_options(estimator)
    try:
        hints = typing.get_type_hints(_factory(estimator))
    except (NameError, TypeError):  # names that exist for a type checker alone
        return {}
    return {name: hints[name] for name in known if name in hints}


def options_schema(estimator: str) -> list[dict[str, Any]]:
    """A recipe's options as rows of `schema_of`. Raises ValueError for an unknown recipe."""
    types_of = option_types(estimator)
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(_factory(estimator)).parameters.items()
    }
    return [
        {
            "key": f"credit.{name}",
            "type": " or ".join(_words(types_of[name])) if name in types_of else "any",
            "default": None if defaults[name] is inspect.Parameter.empty else defaults[name],
            "meaning": f"option of {estimator}: its docstring says what it does",
        }
        for name in recipe_options(estimator)
    ]


def _factory(estimator: str) -> Any:
    return RECIPES[estimator] if estimator in RECIPES else load_attribute(estimator, f"recipe {estimator!r}")


def schema_of(kind: type[BaseModel], prefix: str = "") -> list[dict[str, Any]]:
    """Every key of a section and of those in it: key, type in words, default (as in JSON), meaning."""
    rows: list[dict[str, Any]] = []
    for name, field in kind.model_fields.items():
        if _is_section(field.annotation):
            rows += schema_of(typing.cast("type[BaseModel]", field.annotation), f"{prefix}{name}.")
            continue
        default = field.get_default(call_default_factory=True)
        rows.append(
            {
                "key": prefix + name,
                "type": " or ".join(_words(field.annotation)),
                "default": list(default) if isinstance(default, tuple) else default,
                "meaning": field.description or "",
            }
        )
    return rows


_PLAIN = {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "unset"}


def _words(annotation: Any) -> Iterator[str]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        members = typing.get_args(annotation)
        # A whole number is a number.
        yield from dict.fromkeys(
            word for m in members if m is not int or float not in members for word in _words(m)
        )
    elif origin is Literal:
        yield from map(str, typing.get_args(annotation))
    elif origin is tuple:
        yield f"list of {' or '.join(_words(typing.get_args(annotation)[0]))}"
    else:
        yield _PLAIN.get(annotation, "table" if origin is dict else str(annotation))


_SAID = {
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a section with keys",
    "none_required": "nothing",
    "tuple_type": "a list",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "value_error": "{error}",
}


def _said(error: Any) -> str:
    """What an error of pydantic expected, in words without its jargon."""
    return str(_SAID.get(error["type"], error["msg"])).format(**error.get("ctx", {}))


def _within(kind: Any, path: Sequence[str]) -> list[str]:
    """The leading parts of an error's path that are keys.

    A union's error also names the member that refused.
    """
    if not path or not _is_section(kind) or path[0] not in kind.model_fields:
        return []
    return [path[0], *_within(kind.model_fields[path[0]].annotation, path[1:])]


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _refuse_unknown(tree: Any, kind: type[BaseModel], where: str) -> None:
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{where or 'configuration'}: {tree!r}, expected a section with keys")
    front = f"{where}." if where else ""
    for key, value in tree.items():
        if key not in kind.model_fields:
            near = nearest(key, _keys(kind), least=0.0)
            raise ConfigError(f"{front}{key}: unknown key; did you mean {front}{near}?")
        annotation: Any = kind.model_fields[key].annotation
        if _is_section(annotation):
            _refuse_unknown(value, annotation, f"{front}{key}")


def _keys(kind: type[BaseModel], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, field in kind.model_fields.items():
        names.append(prefix + name)
        if _is_section(field.annotation):
            names += _keys(typing.cast("type[BaseModel]", field.annotation), f"{prefix}{name}.")
    return names
