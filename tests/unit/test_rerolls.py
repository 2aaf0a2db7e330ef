"""Re-rolls: the states that were visited, the values they get, and a collection that stops and goes on."""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest
import torch

from bipace.envs.base import Turn
from bipace.envs.text_mdp import TextMDPSuite
from bipace.policies.gradients import gradient_sketches
from bipace.policies.hf import Actor
from bipace.policies.scoring import score
from bipace.rollout.collect import Collector, Start
from bipace.theory.textworlds import world
from bipace.truth.gradients import describe
from bipace.truth.reading import read_by
from bipace.truth.rerolls import Settings, measure, weights_hash
from bipace.truth.table import load_truth


@pytest.fixture(scope="module")
def actor(tiny_actor_folder):
    return Actor.load(tiny_actor_folder)


def collector(style="transcript"):
    suite = TextMDPSuite(world("random", states=3, actions=2, branching=1), max_steps=3)
    return Collector(suite, style=style, max_steps=3, max_new_tokens=4, max_tokens=400)


def collect(actor, path, style="transcript", **options):
    playing = collector(style)
    given = {"identity": {"actor": "tiny"}, "groups_per_part": 1, **options}
    return measure(
        actor, playing, playing.suite.splits["train"][:2], path, Settings(group_size=3, rerolls=4),
        describe=partial(describe, actor, width=64),
        generator=lambda number: torch.Generator().manual_seed(number),
        **given,
    )  # fmt: skip


@pytest.mark.parametrize("style", ["transcript", "window"])
def test_the_truth_of_an_actor_has_every_column(actor, tmp_path, style):
    truth = collect(actor, tmp_path / "t", style)
    n = len(truth.batch)
    assert truth.value.shape == truth.error.shape == (n,)
    assert truth.halves.shape == (2, n)
    np.testing.assert_allclose(truth.halves.mean(axis=0), truth.advantage, atol=1e-9)
    assert list(truth.layers) == ["0", "1", "2", "3"]
    assert truth.gradient.shape == (n, 64)


@dataclass
class Weigher:
    """Pays for any text by its first character, so that a random actor's returns differ; some texts end
    it.
    """

    weight: int = 0

    def reset(self, task):
        self.weight = int(task)
        return Turn(f"weight {self.weight}")

    def step(self, action):
        self.weight = (3 * self.weight + len(action.encode()) + (ord(action[0]) if action else 0)) % 11
        return Turn(f"weight {self.weight}", float(self.weight % 4), terminated=self.weight == 0)

    def copy(self):
        return replace(self)


@dataclass
class Weighing:
    name: str = "weighing"
    max_steps: int = 3
    instructions: str = ""
    splits: dict = field(default_factory=lambda: {"all": ("4", "7")})

    def make(self):
        return Weigher()


class Tapped(Collector):
    """A collector that keeps what it played."""

    def collect(self, *arguments, **options):
        found = super().collect(*arguments, **options)
        ROLLED.extend(found)
        return found

    def play_on(self, actor, starts, copies, **options):
        found = super().play_on(actor, starts, copies, **options)
        for i, start in enumerate(starts):
            key = (start.task, len(start.steps), start.tokens or tuple(step.action for step in start.steps))
            assert key not in CONTINUED
            CONTINUED[key] = [t.steps[len(start.steps) :] for t in found[i * copies : (i + 1) * copies]]
        return found


ROLLED, CONTINUED = [], {}


def state_of(trajectory, t, style):
    sequence = trajectory.sequences[0]
    tokens = tuple(sequence.tokens[: sequence.spans[t][0]].tolist()) if style == "transcript" else ()
    return trajectory.task, t, tokens or tuple(step.action for step in trajectory.steps[:t])


@pytest.mark.parametrize("style", ["transcript", "window"])
def test_the_numbers_are_those_of_the_continuations_that_were_played(actor, tmp_path, style):
    """Each column once more, as plain sums over what was played on from each state."""
    ROLLED.clear()
    CONTINUED.clear()
    tapped = Tapped(Weighing(), style=style, max_steps=3, max_new_tokens=4, max_tokens=400)
    settings = Settings(group_size=3, rerolls=4, gamma=0.5, reward_scale=3.0)
    truth = measure(
        actor, tapped, ["4", "7"], tmp_path / "t", settings, identity={}, groups_per_part=1,
        describe=partial(describe, actor, width=8),
        generator=lambda number: torch.Generator().manual_seed(number),
    )  # fmt: skip

    def returns(key):
        return [3.0 * sum(0.5**k * step.reward for k, step in enumerate(steps)) for steps in CONTINUED[key]]

    row = 0
    for trajectory in ROLLED:
        for t, step in enumerate(trajectory.steps):
            here = returns(state_of(trajectory, t, style))
            there = (
                returns(state_of(trajectory, t + 1, style)) if t + 1 < len(trajectory.steps) else [0.0] * 4
            )
            assert truth.value[row] == pytest.approx(np.mean(here))
            for found, part in (
                (truth.advantage, slice(None)),
                (truth.halves[0], [0, 2]),
                (truth.halves[1], [1, 3]),
            ):
                expected = (
                    3.0 * step.reward + 0.5 * np.mean(np.array(there)[part]) - np.mean(np.array(here)[part])
                )
                assert found[row] == pytest.approx(expected)
            error = np.sqrt(np.var(here, ddof=1) / 4 + 0.25 * np.var(there, ddof=1) / 4)
            assert truth.error[row] == pytest.approx(error)
            row += 1
    assert row == len(truth.batch)
    assert np.ptp(truth.error) > 0
    assert {len(trajectory.steps) for trajectory in ROLLED} >= {3}
    assert len(CONTINUED) < len(truth.batch)  # states are shared


def test_members_of_a_group_share_the_value_of_their_first_state(actor, tmp_path):
    truth = collect(actor, tmp_path / "t")
    first = truth.batch.t == 0
    for task in np.unique(truth.batch.task):
        assert len(set(truth.value[first & (truth.batch.task == task)])) == 1


def test_a_stopped_collection_goes_on_and_gives_the_same_truth(actor, tmp_path):
    whole = collect(actor, tmp_path / "a")

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(actor, tmp_path / "b", progress=stop)
    assert load_truth(tmp_path / "b.part000") is not None
    told = []
    again = collect(actor, tmp_path / "b", progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]
    np.testing.assert_array_equal(again.advantage, whole.advantage)
    assert [p.name for p in sorted(tmp_path.glob("b*"))] == ["b.json", "b.npz", "b.rollouts.jsonl"]


def test_a_truth_of_another_policy_is_refused(actor, tmp_path):
    collect(actor, tmp_path / "t")
    with pytest.raises(ValueError, match="actor"):
        collect(actor, tmp_path / "t", identity={"actor": "another"})


def test_another_model_reads_the_same_rollouts_once(actor, tmp_path, tiny_llama_folder):
    truth = collect(actor, tmp_path / "t")
    reread = read_by(truth, tmp_path / "t", tiny_llama_folder, [1, -1])
    names = [str(Actor.load(tiny_llama_folder).layer_index(layer)) for layer in (1, -1)]
    assert list(reread.layers) == names
    assert all(len(features) == len(truth.batch) for features in reread.layers.values())
    np.testing.assert_array_equal(reread.advantage, truth.advantage)
    rewarded = np.array([truth.batch.reward[truth.batch.task == task].any() for task in truth.batch.task])
    assert (reread.layers[names[0]].any(axis=1) == rewarded).all()
    file = tmp_path / f"t.read-{tiny_llama_folder.name}.npz"
    written = file.stat().st_mtime_ns
    again = read_by(truth, tmp_path / "t", tiny_llama_folder, [1, -1])
    assert file.stat().st_mtime_ns == written
    np.testing.assert_array_equal(again.layers[names[0]], reread.layers[names[0]])
    smaller = read_by(truth, tmp_path / "t", tiny_llama_folder, [1], group_size=2)
    assert len(smaller.batch) == len(smaller.layers[names[0]]) < len(truth.batch)


def test_a_truth_without_its_rollouts_cannot_be_read(actor, tmp_path, tiny_llama_folder):
    truth = collect(actor, tmp_path / "t")
    (tmp_path / "t.rollouts.jsonl").unlink()
    with pytest.raises(ValueError, match="missing"):
        read_by(truth, tmp_path / "t", tiny_llama_folder, [1])


@pytest.mark.parametrize("short", ["group_size", "rerolls"])
def test_one_of_anything_is_nothing_to_compare(short):
    with pytest.raises(ValueError, match=short):
        Settings(**{short: 1})


def test_an_environment_without_a_copy_is_refused(actor, tmp_path):
    class Frozen:
        copy = None

    class Suite:
        name = "frozen"

        def make(self):
            return Frozen()

    with pytest.raises(ValueError, match=r"env\.suite: the environments of 'frozen' have no copy\(\)"):
        measure(
            actor, Collector(Suite()), ["x"], tmp_path / "t", Settings(), generator=lambda n: None,
            describe=lambda kept: ({}, np.zeros((0, 0), np.float32)), identity={},
        )  # fmt: skip


def test_playing_on_leaves_the_state_untouched_and_keeps_to_the_horizon(actor):
    playing = collector()
    task = playing.suite.splits["train"][0]
    environment = playing.suite.make()
    turn = environment.reset(task)
    before = environment.state
    played = playing.play_on(
        actor,
        [Start(task, environment, turn)],
        3,
        temperature=1.0,
        generator=torch.Generator().manual_seed(0),
    )
    assert environment.state == before
    assert len(played) == 3
    assert all(len(t.steps) <= 3 for t in played)
    late = Start(task, environment, turn, tuple(played[0].steps[:2]), (1, 2, 3))
    (one,) = playing.play_on(actor, [late], 1, temperature=1.0, generator=torch.Generator().manual_seed(0))
    assert len(one.steps) == 3
    assert one.steps[:2] == played[0].steps[:2]


def test_states_of_different_ages_are_not_played_together(actor):
    playing = collector()
    task = playing.suite.splits["train"][0]
    environment = playing.suite.make()
    turn = environment.reset(task)
    (played,) = playing.collect(actor, [task], 1, temperature=1.0, generator=torch.Generator().manual_seed(0))
    starts = [Start(task, environment, turn), Start(task, environment, turn, (played.steps[0],), (1, 2))]
    with pytest.raises(ValueError, match="age"):
        playing.play_on(actor, starts, 1, temperature=1.0, generator=None)


def test_sketches_keep_the_inner_products_of_gradients(actor):
    playing = collector()
    played = playing.collect(
        actor,
        playing.suite.splits["train"][:1],
        2,
        temperature=1.0,
        generator=torch.Generator().manual_seed(0),
    )
    sequences = [s for t in played for s in t.sequences]
    sketches = gradient_sketches(actor, [s.tokens for s in sequences], [s.spans for s in sequences], 16384)
    parameters = list(actor.model.parameters())
    exact = []
    for sequence in sequences:
        for span in sequence.spans:
            logprobs = score(actor, [sequence.tokens], [[span]], layer=None).logprobs
            exact.append(
                torch.cat([g.reshape(-1) for g in torch.autograd.grad(logprobs.sum(), parameters)]).numpy()
            )
    inner = np.stack(exact) @ np.stack(exact).T
    norms = np.sqrt(np.outer(inner.diagonal(), inner.diagonal()))
    np.testing.assert_allclose(sketches @ sketches.T / norms, inner / norms, atol=0.05)


def test_weights_have_one_hash_whatever_the_folder(tiny_actor_folder, tiny_llama_folder, actor, tmp_path):
    actor.save(tmp_path / "copy")
    assert len(weights_hash(tiny_actor_folder)) == 64
    assert weights_hash(tiny_actor_folder) != weights_hash(tiny_llama_folder)
