"""SmolLM2 from its package: a model that talks sense, decodes as `generate` does, and trains on TextCraft."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("gguf", reason="the conversion needs bipace[models]")
pytest.importorskip("accelerate", reason="the conversion needs bipace[models]")
pytestmark = pytest.mark.slow

from bipace.policies.hf import Actor
from bipace.policies.pretrained import fetch, problem
from bipace.policies.scoring import score
from bipace.rollout.prompts import Chat
from bipace.train.actors import actor_folder
from bipace.train.config import load_config
from bipace.train.loop import Run

NAME = "smollm2-135m"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIPACE_CACHE", str(tmp_path_factory.mktemp("home")))
        try:
            fetch(NAME)
        except (ConnectionError, ModuleNotFoundError) as error:
            pytest.skip(f"SmolLM2 cannot be fetched here: {error}")
        yield actor_folder(NAME)


@pytest.fixture(scope="module")
def actor(folder):
    return Actor.load(folder)


def perplexity(actor, text):
    ids = np.array(actor.tokenizer.encode(text, add_special_tokens=False))
    with torch.no_grad():
        return float(torch.exp(-score(actor, [ids], [[(1, len(ids))]], layer=None).logprobs.mean()))


def answer(actor, prompt, n):
    (found,) = actor.session([prompt], capacity=len(prompt) + n).generate(
        [0], max_new_tokens=n, temperature=0.0, generator=torch.Generator()
    )
    return found


def test_the_fetched_folder_is_whole_and_fetching_again_changes_nothing(folder):
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert problem(folder, digests=True) == ""
    assert fetch(NAME) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_plain_english_is_likelier_than_its_words_shuffled(actor):
    plain = perplexity(
        actor, "The capital of France is Paris, a city on the river Seine in the north of the country."
    )
    words = "country north Paris, the Seine of France the on a city capital is river the in The of the."
    assert plain < 40 < perplexity(actor, words) < len(actor.tokenizer)


def test_it_answers_a_simple_question_and_ends_its_turn(actor):
    found = answer(actor, Chat(actor.tokenizer).prompt("What is the capital of France?"), 24)
    assert "Paris" in actor.tokenizer.decode(found.tokens)
    assert found.finished


def test_numbers_are_read_digit_by_digit(actor):
    pieces = [
        actor.tokenizer.decode([i]) for i in actor.tokenizer.encode("use 128 logs", add_special_tokens=False)
    ]
    assert pieces == ["use", " ", "1", "2", "8", " logs"]


def test_greedy_turns_equal_generate_in_float32(actor):
    chat = Chat(actor.tokenizer)
    prompts = [chat.prompt(q) for q in ("What is the capital of France?", "Name three colours.")]
    session = actor.session(prompts, capacity=160)
    grown = [list(p) for p in prompts]
    for _ in range(2):
        responses = session.generate([0, 1], max_new_tokens=8, temperature=0.0, generator=torch.Generator())
        for row, response in enumerate(responses):
            ids = torch.tensor([grown[row]])
            whole = actor.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8,
                eos_token_id=list(actor.end_token_ids),
            )  # fmt: skip
            assert response.tokens.tolist() == whole[0, len(grown[row]) :].tolist()
            reply = chat.reply("And then?", response.finished)
            session.extend([row], [reply])
            grown[row] += [*response.tokens.tolist(), *reply]


def test_features_equal_the_hidden_states_of_a_plain_forward(actor):
    ids = np.array(Chat(actor.tokenizer).prompt("You have 2 oak logs. Goal: craft a crafting table."))
    layer = actor.layer_index(0.61)
    with torch.no_grad():
        found = score(actor, [np.append(ids, 5)], [[(len(ids), len(ids) + 1)]], layer=layer).features
        plain = actor.model(torch.tensor(ids)[None], output_hidden_states=True).hidden_states[layer][0, -1]
    torch.testing.assert_close(found[0], plain, rtol=1e-4, atol=1e-3)


def test_a_training_iteration_runs_end_to_end(folder, tmp_path):
    settings = load_config(
        overrides=[
            f"actor.folder={folder}", "actor.threads=1", "actor.checkpointing=true", "env.max_steps=2",
            "prompt.instructions=true", "prompt.max_new_tokens=12", "rollout.tasks=1", "rollout.group_size=2",
            "update.micro_tokens=1024",
        ]
    )  # fmt: skip
    metrics = Run(settings, tmp_path / "run").step()
    assert metrics["episode/count"] == 2
    assert math.isfinite(metrics["update/grad_norm"])
