"""The real vLLM, where there is one: it speaks as the actor does, before and after updates."""

import importlib.util
import os

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs bipace[lora]")

from bipace.policies.hf import Actor
from bipace.policies.vllm import VllmDecoder
from bipace.train.config import load_config
from bipace.train.loop import Run

SUITE = """
from types import SimpleNamespace
from bipace.envs.base import Turn

class Odd:
    def reset(self, task):
        self.left = 3
        return Turn(f"Say something odd, {task}.")

    def step(self, action):
        self.left -= 1
        odd = sum(map(ord, action)) % 2
        return Turn("Go on.", reward=float(odd), terminated=not self.left, won=bool(odd))

SUITE = SimpleNamespace(
    name="odd", max_steps=4, instructions="", splits={"train": ("a", "b"), "panel": ("a", "b")}, make=Odd,
    family=lambda task: task, expert=lambda task: (),
)
"""
VLLM = ("rollout.engine=vllm", "features.source=shared")


def runs_here():
    """The device that the installed vllm runs on here, or None."""
    if importlib.util.find_spec("vllm") is None:
        return None
    from vllm.platforms import current_platform

    return current_platform.device_type or None


DEVICE = runs_here()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # vLLM's own
    pytest.mark.skipif(DEVICE is None, reason="vllm is not installed here, or finds no device"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory, wide_head_folder):
    """A run whose episodes vLLM plays."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    folder = tmp_path_factory.mktemp("run")
    (folder / "odd.py").write_text(SUITE)
    settings = (
        f"actor.folder={wide_head_folder}", f"actor.device={DEVICE}", "actor.lora_rank=4", "update.lr=0.05",
        f"env.suite={folder}/odd.py:SUITE", "prompt.max_new_tokens=8", "prompt.max_tokens=256",
        "rollout.tasks=2",
        "rollout.group_size=4", "rollout.engine_memory=0.2",
    )  # fmt: skip
    return Run(load_config(overrides=[*VLLM, *settings]), folder)


def greedy(decoder, prompts):
    session = decoder.session(prompts, copies=2, capacity=128)
    generator = torch.Generator(device=DEVICE).manual_seed(0)
    rows = range(2 * len(prompts))
    first = session.generate(rows, max_new_tokens=8, temperature=0.0, generator=generator)
    session.extend([0, 3], [[11, 12, 13], [14]])
    second = session.generate([3, 0], max_new_tokens=5, temperature=0.0, generator=generator)
    return [r.tokens.tolist() for r in (*first, *second)], session.lengths.tolist()


def test_vllm_says_what_the_actor_says_before_and_after_an_update(run):
    prompts = [[5, 6, 7, 8], [9, 10, 11]]
    tolerance = 1e-4 if DEVICE == "cpu" else 0.1  # float32 beside bfloat16
    before = greedy(run.decoder, prompts)
    if DEVICE == "cpu":
        assert before == greedy(run.actor, prompts)
    for _ in range(2):
        metrics = run.step()
        assert metrics["update/grad_norm"] > 0
        assert metrics["rollout/logprob_gap"] < tolerance
    after = greedy(run.decoder, prompts)
    assert after != before
    if DEVICE == "cpu":
        assert after == greedy(run.actor, prompts)


def test_the_same_seeds_draw_the_same_tokens_and_copies_differ(run):
    def drawn(seed):
        session = run.decoder.session([[5, 6, 7]], copies=4, capacity=64)
        found = session.generate(
            range(4),
            max_new_tokens=12,
            temperature=1.0,
            generator=torch.Generator(device=DEVICE).manual_seed(seed),
        )
        return [r.tokens.tolist() for r in found]

    assert drawn(0) == drawn(0) != drawn(1)
    assert len({tuple(tokens) for tokens in drawn(0)}) > 1


def test_what_vllm_cannot_do_is_refused(run, wide_head_folder):
    with pytest.raises(ValueError, match=rf"the installed vllm runs on {DEVICE}, the actor on meta"):
        VllmDecoder(Actor.load(wide_head_folder, device="meta"), max_tokens=64, memory=0.2)
    with pytest.raises(ValueError, match=r"no hidden states; set features\.source=shared"):
        run.decoder.session([[1, 2]], capacity=8, layer=1)
    with pytest.raises(ValueError, match="prompt 0 has 9 tokens"):
        run.decoder.session([[1] * 9], capacity=8)
    session = run.decoder.session([[1, 2]], capacity=8)
    with pytest.raises(ValueError, match="cannot take 7 more"):
        session.generate([0], max_new_tokens=7, temperature=1.0, generator=torch.Generator(device=DEVICE))
