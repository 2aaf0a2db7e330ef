"""Every public function and class of the stable modules has an example, and every example runs."""

import doctest
import importlib
import inspect
import pkgutil
import typing
from pathlib import Path

import pytest

import bipace

STABLE = (
    "bipace",
    "bipace.analyze",
    "bipace.envs.base",
    "bipace.integrations.common.estimator",
    "bipace.integrations.common.guards",
    "bipace.integrations.common.preflight",
    "bipace.integrations.common.rows",
    "bipace.integrations.common.settings",
    "bipace.integrations.common.spread",
    # Not promised to stay, but shown in the reference.
    "bipace.core.actions",
    "bipace.core.baselines",
    "bipace.core.clustering",
    "bipace.core.parts",
    "bipace.core.returns",
    "bipace.core.sample",
    "bipace.envs.registry",
    "bipace.theory.mdp",
    "bipace.theory.textworlds",
)
"""What docs/design.md calls stable, and what docs/reference shows beside it.

All that they export has an example.
"""

# plumbing between modules, in no page of the reference
WITHOUT = {"remove_directions", "vectors_of", "Section"}


def _exported(name):
    module = importlib.import_module(name)
    for word in module.__all__:
        thing = getattr(module, word)
        if (inspect.isfunction(thing) or inspect.isclass(thing)) and word not in WITHOUT:
            yield word, thing


@pytest.mark.parametrize("name", STABLE)
def test_every_public_name_has_an_example(name):
    recipes = bipace.RECIPES.items() if name == "bipace" else ()
    lacking = [w for w, thing in (*_exported(name), *recipes) if ">>> " not in (inspect.getdoc(thing) or "")]
    assert not lacking


def _modules():
    for package in ("analyze", "config", "core", "envs", "integrations.common", "rollout", "theory", "truth"):
        path = importlib.import_module(f"bipace.{package}").__path__
        yield from (found.name for found in pkgutil.walk_packages(path, f"bipace.{package}."))


@pytest.mark.parametrize("name", sorted(_modules()))
def test_the_examples_run(name):
    if ">>> " not in (Path(importlib.import_module(name).__file__).read_text(encoding="utf-8")):
        return
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert tried
    assert not failed


def test_type_hints_of_what_is_exported_can_be_read():
    for _, thing in _exported("bipace"):
        if inspect.isfunction(thing):
            assert typing.get_type_hints(thing)
