"""Rollouts by vLLM for an actor on a GPU: its weights in a second engine, tokens in and tokens out.

vLLM samples and does nothing else. Its tokens are trained exactly as they were sampled; features and old
log-probabilities come from the actor's own forward over them (`features.source=shared`), because vLLM gives
no hidden states and rounds otherwise. Written against vLLM 0.32.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.language_model import LanguageModel
from bipace.policies.lora import plain_weights
from bipace.policies.responses import Response, require_prompts, require_room

__all__ = ["VllmDecoder", "VllmSession"]


class VllmDecoder:
    """An in-process `vllm.LLM` that speaks with an actor's weights (a Decoder of bipace.rollout.collect).

    Args:
        actor: whose weights, tokenizer and end tokens are used; loaded from a local folder.
        max_tokens: most tokens of a context, responses included.
        memory: share of the device's memory the engine may take; the actor and its optimizer need the rest.

    Raises:
        ModuleNotFoundError: vllm is not installed.
        ValueError: the installed vllm does not run where the actor is.
    """

    def __init__(self, actor: LanguageModel, *, max_tokens: int, memory: float) -> None:
        self.actor, self.tokenizer = actor, actor.tokenizer
        self.vllm = _vllm(actor.device.type)
        self.engine = self.vllm.LLM(
            model=actor.model.config.name_or_path,
            load_format="dummy",  # the weights are the actor's, whatever the folder holds by now
            # Some builds keep a packed copy of the output layer that reloading a tied weight does not reach.
            hf_overrides={"tie_word_embeddings": False},
            # vLLM's fast attention is 16-bit; on a CPU nothing is gained by rounding.
            dtype="float32" if actor.device.type == "cpu" else "bfloat16",
            skip_tokenizer_init=True,
            generation_config="vllm",
            logprobs_mode="processed_logprobs",
            max_model_len=max_tokens,
            gpu_memory_utilization=memory,
        )
        self.sync()

    def sync(self) -> None:
        """Hand over the actor's present weights and drop what was cached under the old ones."""
        weights = plain_weights(self.actor.model)
        self.engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self.engine.reset_prefix_cache()

    def session(
        self, prompts: Sequence[Sequence[int]], copies: int = 1, *, capacity: int, layer: int | None = None
    ) -> VllmSession:
        """Begin decoding `copies` rows of each prompt, prompt-major.

        Raises:
            ValueError: a hidden state is asked for, or a prompt is empty or longer than the capacity.
        """
        if layer is not None:
            raise ValueError("rollout.engine: vllm gives no hidden states; set features.source=shared")
        require_prompts(prompts, capacity)
        return VllmSession(
            self, [list(map(int, prompt)) for prompt in prompts for _ in range(copies)], capacity
        )


class VllmSession:
    """Rows that grow together.

    vLLM's prefix cache keeps what it computed of a row, and of a prompt that rows share.
    """

    def __init__(self, decoder: VllmDecoder, rows: list[list[int]], capacity: int) -> None:
        self.decoder, self.rows, self.capacity = decoder, rows, capacity

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens held per row."""
        return np.array([len(tokens) for tokens in self.rows], dtype=np.int64)

    def extend(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Append context tokens to the given rows.

        Raises ValueError where a row would exceed the capacity.
        """
        require_room(self.lengths, rows, [len(chunk) for chunk in tokens], self.capacity)
        for row, chunk in zip(rows, tokens, strict=True):
            self.rows[row] += map(int, chunk)

    def generate(
        self, rows: Sequence[int], *, max_new_tokens: int, temperature: float, generator: torch.Generator
    ) -> list[Response]:
        """One response for each of the given rows, in their order, without a hidden state.

        Args:
            rows: distinct rows of the session; the others rest.
            max_new_tokens: most tokens of one response.
            temperature: 0 takes the likeliest token.
            generator: gives each row's request its seed.

        Raises:
            ValueError: a row has no room for max_new_tokens.
        """
        require_room(self.lengths, rows, [max_new_tokens] * len(rows), self.capacity)
        ends = self.decoder.actor.end_token_ids
        seeds = torch.randint(2**31, (len(rows),), generator=generator, device=generator.device).tolist()
        make = partial(
            self.decoder.vllm.SamplingParams, temperature=temperature, max_tokens=max_new_tokens,
            stop_token_ids=list(ends), logprobs=0, detokenize=False,
        )  # fmt: skip
        asked = [make(seed=seed) for seed in seeds]
        prompts = [{"prompt_token_ids": self.rows[row]} for row in rows]
        responses: list[Response] = []
        for row, answer in zip(
            rows, self.decoder.engine.generate(prompts, asked, use_tqdm=False), strict=True
        ):
            found = answer.outputs[0]
            tokens = list(found.token_ids)
            logprobs = [at[token].logprob for token, at in zip(tokens, found.logprobs, strict=True)]
            self.rows[row] += tokens
            responses.append(Response(np.array(tokens), np.array(logprobs, np.float32), tokens[-1] in ends))
        return responses


def _vllm(device: str) -> Any:
    # In one process the weights are handed over as they are; a second one would have to unpickle them.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        vllm = importlib.import_module("vllm")
        runs_on = importlib.import_module("vllm.platforms").current_platform.device_type
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "rollout.engine: vllm is not installed: pip install 'bipace[vllm]' on a machine with a GPU, or "
            "keep rollout.engine=hf"
        ) from error
    if runs_on != device:
        raise ValueError(
            f"rollout.engine: the installed vllm runs on {runs_on or 'no device of this machine'}, the actor "
            f"on {device}; set actor.device to the same, or rollout.engine=hf"
        )
    return vllm
