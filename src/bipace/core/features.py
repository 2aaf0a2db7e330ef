"""Feature vectors that live elsewhere, on a GPU say, and of which the core asks only what is small."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Features", "FeaturesElsewhere", "finite_rows", "on_host"]


@runtime_checkable
class FeaturesElsewhere(Protocol):
    """[N, D] vectors in some device's memory (`bipace.policies.device_features` for torch)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, D)."""
        ...

    def __len__(self) -> int:
        """N."""
        ...

    def __getitem__(self, rows: NDArray[np.int64]) -> FeaturesElsewhere:
        """Some rows, still there."""
        ...

    def finite(self) -> NDArray[np.bool_]:
        """[N] True where all of a vector is finite."""
        ...

    def gram(self) -> NDArray[np.float32]:
        """[N, N] inner products of the vectors as they are, computed there."""
        ...

    def to_numpy(self) -> NDArray[np.float32]:
        """All of it."""
        ...


Features = NDArray[np.float32] | FeaturesElsewhere


def finite_rows(features: Features) -> NDArray[np.bool_]:
    """[N] True where all of a vector is finite."""
    if isinstance(features, FeaturesElsewhere):
        return features.finite()
    return np.asarray(np.isfinite(features).all(axis=-1))


def on_host(features: Features) -> NDArray[np.float32]:
    """The vectors as an array, for what needs them one by one: whitening, the plain form, plots."""
    return features.to_numpy() if isinstance(features, FeaturesElsewhere) else features
