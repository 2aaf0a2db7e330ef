"""Flat tokens as a padded table, and back: attention needs tables, everything else is better off without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["PaddedTable", "padded_table", "token_table"]


@dataclass(frozen=True, slots=True)
class PaddedTable:
    """T tokens, row by row, as a table [rows, width].

    Attributes:
        rows: rows of the table.
        width: its columns.
        index: [rows * width] token in each cell, 0 in the padding; None where there is no padding.
        cells: [T] cell of each token; None where there is no padding.
    """

    rows: int
    width: int
    index: torch.Tensor | None
    cells: torch.Tensor | None

    def pad(self, x: torch.Tensor) -> torch.Tensor:
        """States of tokens [T, heads, groups, d] as [rows, heads, width * groups, d].

        A padding cell shows the first token.
        """
        _, heads, groups, size = x.shape
        x = x if self.index is None else x.index_select(0, self.index)
        x = x.reshape(self.rows, self.width, heads, groups, size).transpose(1, 2)
        return x.reshape(self.rows, heads, self.width * groups, size)

    def unpad(self, x: torch.Tensor, groups: int) -> torch.Tensor:
        """The way back from `pad`: [T, heads, groups, d]."""
        _, heads, _, size = x.shape
        x = x.reshape(self.rows, heads, self.width, groups, size).transpose(1, 2)
        x = x.reshape(self.rows * self.width, heads, groups, size)
        return x if self.cells is None else x.index_select(0, self.cells)


def padded_table(lengths: Sequence[int], device: torch.device) -> PaddedTable:
    """The table of so many tokens in each row."""
    index, real = token_table(lengths, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
    if real.all():
        return PaddedTable(*index.shape, index=None, cells=None)
    cells = torch.from_numpy(np.flatnonzero(real)).to(device)
    return PaddedTable(*index.shape, index=torch.from_numpy(index.ravel()).to(device), cells=cells)


def token_table(
    lengths: Sequence[int], starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Consecutive tokens from each row's start, [rows, longest], and where there is a token.

    Behind a row's end stands 0.
    """
    column = np.arange(max(lengths, default=0))
    real = column < np.array(lengths, dtype=np.int64)[:, None]
    return np.where(real, starts[: len(lengths), None] + column, 0), real
