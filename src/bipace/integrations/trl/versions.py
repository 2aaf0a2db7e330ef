"""Which TRL the adapter works with; importing this needs no TRL."""

from __future__ import annotations

from bipace.integrations.common.guards import check_version

__all__ = ["TESTED", "check_trl"]

TESTED = ("1.16.0",)
"""Versions that `make test-engines` has passed with.

A new minor version moves private methods: it is refused by name until the tests have passed with it and it
stands here."""

_LOW, _BELOW = (1, 16, 0), (1, 17, 0)


def check_trl(version: str) -> str:
    """What is to be said of an installed TRL, e.g. "trl 1.16.0: tested".

    Raises:
        ImportError: a version the adapter was not tested with, and what to install instead.
    """
    check_version("trl", version, _LOW, _BELOW)
    return (
        f"trl {version}: "
        f"{'tested' if version in TESTED else 'a patch of ' + TESTED[-1] + ', itself not tested'}"
    )
