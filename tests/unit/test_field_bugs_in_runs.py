"""The classes of bugs of the field that live around a model: masks, hidden states, resuming, panels, tokens.

`test_field_bugs.py` holds those of the estimators, and the table of all of them.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from bipace.envs.text_mdp import TextMDPSuite
from bipace.envs.textcraft.recipes import load_recipe_book
from bipace.policies.hf import Actor
from bipace.policies.scoring import score
from bipace.rollout.collect import Collector
from bipace.rollout.panel import evaluate
from bipace.rollout.records import TokenSequence
from bipace.rollout.sampler import choose_tasks
from bipace.theory.textworlds import world
from bipace.train.config import ConfigError, UpdateConfig, load_config
from bipace.train.provenance import provenance
from bipace.train.run_folder import begin, check_folder
from bipace.train.scored import score_sequences
from bipace.train.split import Split
from bipace.train.threads import Threads
from bipace.train.update import token_values, update_policy


@pytest.fixture(scope="module")
def folder(tiny_actor_folder):
    return tiny_actor_folder


@pytest.fixture
def actor(folder):
    return Actor.load(folder)


def sequence(length, *spans, seed=0):
    return TokenSequence(np.random.default_rng(seed).integers(0, 250, length), spans)


def update(actor, sequences, values, **changes):
    """One pass without a step of the optimizer: the gradient stays where it was computed."""
    old = score_sequences(actor, sequences, layer=None, micro_tokens=512).logprobs
    optimizer = torch.optim.SGD(actor.model.parameters(), lr=0.0)
    config = UpdateConfig(grad_clip=1e9, minibatches=1, **changes)
    groups, shuffle = [str(i) for i in range(len(sequences))], np.random.default_rng(0)
    advantages = token_values(sequences, values)
    return update_policy(actor, optimizer, sequences, old, advantages, config, groups=groups, shuffle=shuffle)


def gradient(actor):
    return torch.cat([p.grad.flatten() for p in actor.model.parameters()])


@pytest.mark.parametrize("step", [0, 1, 2])
def test_3_every_step_is_trained_on_its_own_tokens_not_the_last_steps(step, actor):
    """(SkyRL 1492) A value on one step alone moves the log-probabilities of that step's tokens, and no
    others.
    """
    one = sequence(30, (4, 6), (11, 16), (27, 30))
    update(actor, [one], np.eye(3)[step])
    found = gradient(actor)
    actor.model.zero_grad()
    ids = torch.from_numpy(one.tokens)[None]
    logprobs = actor.model(ids).logits[0].log_softmax(-1)
    start, end = one.spans[step]
    own = sum(logprobs[position - 1, ids[0, position]] for position in range(start, end))
    (-own / sum(b - a for a, b in one.spans)).backward()
    torch.testing.assert_close(found, gradient(actor), rtol=1e-3, atol=1e-6)


def test_9_an_update_without_a_response_token_is_no_division_by_zero(actor):
    """(verl 7970)"""
    before = [p.detach().clone() for p in actor.model.parameters()]
    metrics = update(actor, [], np.zeros(0))
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["update/response_tokens"] == 0
    assert all(torch.equal(a, b) for a, b in zip(before, actor.model.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"span \(4, 4\) is not within"):
        score(actor, [np.arange(9)], [[(4, 4)]], layer=None)


def test_10_every_step_gets_its_own_hidden_state_whatever_it_is_batched_with(actor):
    """(Qwen3 829, sglang 4997) Short and long prompts, in one forward or in many, out of order."""
    lengths = (40, 7, 23, 7, 60)
    mixed = [sequence(n, (n - 3, n), seed=n + i) for i, n in enumerate(lengths)]
    alone = np.concatenate([score_sequences(actor, [s], layer=2, micro_tokens=512).features for s in mixed])
    assert len(np.unique(alone, axis=0)) == len(mixed)
    for micro_tokens in (1, 64, 4096):
        together = score_sequences(actor, mixed, layer=2, micro_tokens=micro_tokens).features
        np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_11_the_iteration_after_the_last_of_a_pass_is_played_and_is_no_replay():
    """(verl 5725, 4156) What is played depends on the iteration alone, so a resumed run cannot be
    elsewhere.
    """

    def played(first, count):
        return [choose_tasks(6, 2, seed=3, iteration=i, order="passes") for i in range(first, first + count)]

    whole = played(0, 6)
    assert all(len(tasks) == 2 for tasks in whole)
    assert whole[3:] == played(3, 3)
    for number in (0, 3):
        assert {task for tasks in whole[number : number + 3] for task in tasks} == set(range(6))
    assert whole[3:] != whole[:3]


def test_11_a_relaunch_with_another_estimator_or_another_file_of_ones_own_is_refused(tmp_path):
    """Under the old name only the old run goes on."""
    own = tmp_path / "own.py"
    own.write_text("from bipace.core.estimators import gigpo as mine\n")
    run, config = tmp_path / "run", load_config(overrides=[f"estimator={own}:mine"])

    def origin():
        return provenance(
            config, config.recipe(), {"train": ["a", "b"]}, Threads(1, "test"), Split(1, 1), None
        )

    begin(config, run, origin())
    check_folder(config, run, resume=True)
    begin(config, run, origin())
    with pytest.raises(ConfigError, match=r"these keys differ: estimator$"):
        check_folder(load_config(overrides=["estimator=grpo"]), run, resume=True)
    own.write_text("from bipace.core.estimators import grpo as mine\n")
    with pytest.raises(ConfigError, match=r"own\.py"):
        begin(config, run, origin())


@pytest.mark.parametrize("backwards", [False, True])
def test_12_the_order_of_a_directory_listing_decides_nothing(backwards, monkeypatch):
    """(Agent-G2 1) TextCraft's recipes, and with them every goal and split, come from a folder of files."""
    listing = Path.glob
    monkeypatch.setattr(Path, "glob", lambda self, pattern: sorted(listing(self, pattern), reverse=backwards))
    again, book = load_recipe_book.__wrapped__(), load_recipe_book()
    for name in (f.name for f in fields(book)):
        assert getattr(again, name) == getattr(book, name), name
    assert list(again.by_item) == list(book.by_item)


def corridor():
    return TextMDPSuite(world("random", states=3, actions=2, branching=1), max_steps=3)


def test_12_validation_plays_every_task_of_its_panel_once(actor):
    """(SDAR 58)"""
    suite = corridor()
    tasks = suite.splits["test"][:7]
    collector = Collector(suite, max_steps=3, max_new_tokens=4, max_tokens=400, parallel=3)
    result = evaluate(actor, collector, tasks, temperature=1.0, generator=torch.Generator().manual_seed(0))
    assert [t.task for t in result.trajectories] == list(tasks)
    assert len(set(tasks)) == len(tasks)


@dataclass
class Tapped:
    """An actor, or its session, that remembers what was sampled."""

    inner: Any
    sampled: list = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def session(self, *arguments, **options):
        return Tapped(self.inner.session(*arguments, **options), self.sampled)

    def generate(self, *arguments, **options):
        responses = self.inner.generate(*arguments, **options)
        self.sampled += [response.tokens.tolist() for response in responses]
        return responses


@pytest.mark.parametrize("style", ["transcript", "window"])
def test_13_tokens_are_trained_as_they_were_sampled_never_as_their_text_encodes(style, actor):
    """(trl 5224) A random actor writes bytes that are no text: decoding and encoding them again gives other
    tokens.
    """
    suite, tapped = corridor(), Tapped(actor)
    collector = Collector(suite, style=style, max_steps=3, max_new_tokens=6, max_tokens=900)
    generator = torch.Generator().manual_seed(0)
    found = collector.collect(tapped, suite.splits["train"][:2], 3, temperature=1.0, generator=generator)
    kept = [s.tokens[a:b].tolist() for t in found for s in t.sequences for a, b in s.spans]
    assert sorted(kept) == sorted(tapped.sampled)
    responses = [step.response for t in found for step in t.steps]
    encoded = [actor.tokenizer.encode(text, add_special_tokens=False) for text in responses]
    assert sum(a != b for a, b in zip(encoded, kept, strict=True)) > len(kept) // 2
