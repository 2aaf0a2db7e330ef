"""Clusters of observation texts that are similar: GiGPO's second way to tell states apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import ClassVar

import numpy as np

from bipace.core import segments
from bipace.core.parts import needs
from bipace.core.steps import Ints, StepBatch

__all__ = ["BySimilarity", "by_similarity"]


@needs("texts")
def by_similarity(batch: StepBatch, ratio: float = 0.95) -> Ints:
    """Peers have similar observation text: a step joins the first cluster whose leader is similar enough.

    Similarity is difflib's ratio (GiGPO's public code: >= 0.95, first match, the leader never moves). Visit
    order: (trajectory, t) within the prompt group.

    Raises:
        ValueError: the table carries no texts, or ratio outside [0, 1].

    Examples:
        >>> from bipace.core.similarity import by_similarity
        >>> from bipace.core.sample import sample_batch
        >>> by_similarity(sample_batch(), ratio=0.9).tolist()
        [0, 1, 0, 1]
    """
    if batch.texts is None:
        raise ValueError(
            "texts: None, but by_similarity compares observation texts; build the table with text"
        )
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"ratio: {ratio}, expected a similarity in [0, 1]")
    labels = np.empty(len(batch), np.int64)
    leaders: list[int] = []
    known: dict[tuple[int, int], int] = {}
    first_leader, task = 0, 0
    for row in batch.order().tolist():
        if not leaders or batch.task[row] != task:
            task, first_leader = int(batch.task[row]), len(leaders)
        observation = int(batch.observation[row])
        key = (task, observation)
        if key not in known:
            match = _first_similar(batch.texts, leaders, first_leader, observation, ratio)
            known[key] = match
            if match == len(leaders):
                leaders.append(observation)
        labels[row] = known[key]
    return segments.compact(labels)


@dataclass(frozen=True)
class BySimilarity:
    """`by_similarity` with its ratio.

    Examples:
        >>> from bipace.core.similarity import BySimilarity
        >>> sorted(BySimilarity.needs)
        ['texts']
    """

    ratio: float = 0.95
    name: ClassVar[str] = "by_similarity"
    needs: ClassVar[frozenset[str]] = frozenset({"texts"})

    def __call__(self, batch: StepBatch) -> Ints:
        """[N] compact labels."""
        return by_similarity(batch, self.ratio)


def _first_similar(
    texts: Sequence[str], leaders: list[int], first: int, observation: int, ratio: float
) -> int:
    for index in range(first, len(leaders)):
        if SequenceMatcher(None, texts[leaders[index]], texts[observation]).ratio() >= ratio:
            return index
    return len(leaders)
