"""Features that stay on the actor's device: only inner products of a prompt group leave it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.core.features import Features

__all__ = ["DeviceFeatures", "as_features"]


class DeviceFeatures:
    """[N, D] float32 vectors as a torch tensor (`bipace.core.features.FeaturesElsewhere`).

    Args:
        tensor: the vectors.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.float()

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, D)."""
        return tuple(self.tensor.shape)

    def __len__(self) -> int:
        """N."""
        return len(self.tensor)

    def __getitem__(self, rows: NDArray[np.int64]) -> DeviceFeatures:
        """Some rows, still there."""
        return DeviceFeatures(self.tensor[torch.from_numpy(rows).to(self.tensor.device)])

    def finite(self) -> NDArray[np.bool_]:
        """[N] True where all of a vector is finite."""
        return self.tensor.isfinite().all(dim=1).cpu().numpy()

    def gram(self) -> NDArray[np.float32]:
        """[N, N] inner products."""
        return (self.tensor @ self.tensor.T).cpu().numpy()

    def to_numpy(self) -> NDArray[np.float32]:
        """All of it."""
        return self.tensor.cpu().numpy()


def as_features(tensor: torch.Tensor) -> Features:
    """[N, D] vectors for the core.

    An array where they are in the host's memory anyway, else left where they are.
    """
    found = DeviceFeatures(tensor)
    return found.to_numpy() if tensor.device.type == "cpu" else found
