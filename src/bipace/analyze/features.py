"""State features: text vectors without a model, hidden states with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.analyze.messages import as_text
from bipace.analyze.records import LoggedTrajectory
from bipace.analyze.table import Table

__all__ = ["TEXT_LABEL", "hidden_states", "text_vectors"]

WIDTH = 256
TEXT_LABEL = (
    "text vectors of the observation (scikit-learn: hashed words and word pairs, tf-idf, random projection "
    f"to {WIDTH}). They measure wording, not what a model makes of a state; pass --model FOLDER for hidden "
    "states"
)
# Words that open a text say most about the state; a giant observation must not cost minutes.
MAX_CHARACTERS = 20_000


def text_vectors(table: Table) -> NDArray[np.float32]:
    """[N, 257] vectors; equal observations have equal vectors.

    Observations without a word share one of their own.

    Distances are kept by the projection to within about 10 % of themselves, so an equal text stays at
    distance 0.
    """
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.random_projection import SparseRandomProjection

    labels = table.batch.observation
    first = np.unique(labels, return_index=True)[1]
    texts = [as_text(table.steps[int(row)].observation)[:MAX_CHARACTERS] for row in first]
    # The stubs of scikit-learn infer types from defaults; its own classes check these parameters.
    vectorizer: Any = HashingVectorizer
    projector: Any = SparseRandomProjection
    counts = vectorizer(n_features=1 << 16, ngram_range=(1, 2), token_pattern=r"\w+", norm=None).transform(
        texts
    )
    weighted = TfidfTransformer(sublinear_tf=False).fit_transform(counts)
    projection = projector(WIDTH, density=1 / 16, dense_output=True, random_state=0)
    projected = np.asarray(projection.fit_transform(weighted), np.float32)
    wordless = (~projected.any(axis=1, keepdims=True)).astype(np.float32)
    return np.concatenate([projected, wordless], axis=1)[labels]


def hidden_states(
    table: Table, folder: str | Path, layer: int | float, tick: Callable[[int], None] = lambda _steps: None
) -> NDArray[np.float32]:
    """[N, D] hidden states of a local model at the last token before each response, one pass a trajectory.

    The conversation is rebuilt from the file: context, observations and responses under the tokenizer's chat
    template. It is cut at the left where it is longer than the model's window.

    Args:
        table: the steps.
        folder: a local Hugging Face folder.
        layer: index into hidden_states, negative from the end, or a fraction of the depth.
        tick: called with the number of finished steps.
    """
    from bipace.policies.chat_states import read_chat
    from bipace.policies.hf import Actor

    actor = Actor.load(folder)
    index = actor.layer_index(layer)
    found: list[NDArray[np.float32]] = []
    for trajectory in table.trajectories:
        found.append(read_chat(actor, _conversation(trajectory), [index])[:, 0])
        tick(len(trajectory.steps))
    return np.concatenate(found)


def _conversation(trajectory: LoggedTrajectory) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": trajectory.context}] if trajectory.context else []
    for step in trajectory.steps:
        messages.append({"role": "user", "content": as_text(step.observation)})
        messages.append({"role": "assistant", "content": step.response})
    return messages
