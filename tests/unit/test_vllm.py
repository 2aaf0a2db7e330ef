"""vLLM rollouts: refused with a reason where they cannot run, and told apart from the actor by what they
drew.
"""

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from bipace.policies.hf import Actor
from bipace.rollout.records import TokenSequence
from bipace.train.actors import load_actor, make_decoder
from bipace.train.config import load_config
from bipace.train.scored import engine_gap, score_sequences

VLLM = ("rollout.engine=vllm", "features.source=shared")


def test_without_vllm_the_extra_is_named(tiny_actor_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)  # what an import finds where the package is absent
    config = load_config(overrides=[*VLLM, f"actor.folder={tiny_actor_folder}"])
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bipace\[vllm\]'.*rollout\.engine=hf"):
        make_decoder(config, load_actor(config))


def test_by_default_the_actor_plays_itself(tiny_actor_folder):
    config = load_config(overrides=[f"actor.folder={tiny_actor_folder}"])
    actor = load_actor(config)
    assert make_decoder(config, actor) is actor


def test_the_gap_is_that_between_drawn_and_scored(tiny_actor_folder):
    actor = Actor.load(tiny_actor_folder)
    session = actor.session([[5, 6, 7]], copies=2, capacity=32)
    drawn = session.generate(
        [0, 1], max_new_tokens=6, temperature=0.8, generator=torch.Generator().manual_seed(0)
    )

    def sampled(*shifts):
        return [
            TokenSequence(
                np.array([5, 6, 7, *r.tokens]), ((3, 3 + len(r.tokens)),), r.logprobs - np.float32(shift)
            )
            for r, shift in zip(drawn, shifts, strict=True)
        ]

    scored = score_sequences(actor, sampled(0, 0), layer=None, micro_tokens=512, temperature=0.8)
    share = len(drawn[1].tokens) / sum(len(r.tokens) for r in drawn)
    expected = {"rollout/logprob_gap": 0.1 * share, "rollout/logprob_gap_max": 0.1}
    assert engine_gap(sampled(0, 0.1), scored) == pytest.approx(expected, abs=1e-5)
    assert engine_gap([TokenSequence(s.tokens, s.spans) for s in sampled(0, 0)], scored) == {}
    with pytest.raises(RuntimeError, match=r"0\.500 nats.*speaks with other weights"):
        engine_gap(sampled(0.5, 0.5), scored)
