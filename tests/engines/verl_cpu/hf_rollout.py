"""A verl rollout named `hf`: one Ray actor per replica that decodes with a Hugging Face model. Not part of
the product.

Calls that wait at the same time are decoded side by side. Each set of weights that arrives is written down
(tensor count and checksum by name), so that a test can hold it against the checkpoint.
"""

import asyncio
import json
import os
from pathlib import Path

import ray
import torch
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput


@torch.no_grad()
def decode(model, eos, requests):
    """Sample for (prompt, limit, temperature) requests, left-padded with natural positions."""
    longest = max(len(prompt) for prompt, _, _ in requests)
    ids = torch.zeros(len(requests), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, _, _) in enumerate(requests):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    temperature = torch.tensor([t for _, _, t in requests])[:, None]
    greedy = temperature[:, 0] == 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    tokens, logprobs = [[] for _ in requests], [[] for _ in requests]
    open_rows, past, current = set(range(len(requests))), None, ids
    while open_rows:
        out = model(
            input_ids=current,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=past,
            use_cache=True,
        )
        past = out.past_key_values
        scores = out.logits[:, -1].float() / torch.where(temperature == 0, 1.0, temperature)
        logp = torch.log_softmax(scores, -1)
        drawn = torch.where(greedy, logp.argmax(-1), torch.multinomial(logp.exp(), 1)[:, 0])
        for row in sorted(open_rows):
            token = int(drawn[row])
            tokens[row].append(token)
            logprobs[row].append(float(logp[row, token]))
            if token == eos or len(tokens[row]) >= requests[row][1]:
                open_rows.discard(row)
        current, positions = drawn[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, torch.ones(len(requests), 1, dtype=torch.long)], 1)
    return [(t, p, "completed" if t[-1] == eos else "length") for t, p in zip(tokens, logprobs, strict=True)]


@ray.remote(num_cpus=0, max_concurrency=4096)
class Server:
    def __init__(self, path, limit, eos, rank):
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.limit, self.eos, self.rank, self.version = limit, eos, rank, 0
        self.waiting, self.worker = [], None
        torch.manual_seed(1000 + rank)

    async def generate(self, prompt_ids, sampling_params, request_id=None, **_):
        answer = asyncio.get_running_loop().create_future()
        limit = int(sampling_params.get("max_tokens") or self.limit)
        self.waiting.append(
            ((list(prompt_ids), limit, float(sampling_params.get("temperature", 1.0))), answer)
        )
        if self.worker is None:
            self.worker = asyncio.create_task(self._drain())
        tokens, logprobs, reason = await answer
        return TokenOutput(
            token_ids=tokens,
            log_probs=logprobs,
            stop_reason=reason,
            extra_fields={"global_steps": self.version},
        )

    async def _drain(self):
        while self.waiting:
            await asyncio.sleep(0.01)
            # Prompts of one length class go together: padding costs time.
            self.waiting.sort(key=lambda w: len(w[0][0]))
            batch, self.waiting = self.waiting[:128], self.waiting[128:]
            results = await asyncio.to_thread(decode, self.model, self.eos, [r for r, _ in batch])
            for (_, answer), result in zip(batch, results, strict=True):
                answer.set_result(result)
        self.worker = None

    async def load(self, weights, version):
        missing = self.model.load_state_dict(weights, strict=False)
        self.version = version if version is not None else self.version
        note = {
            "rank": self.rank,
            "version": self.version,
            "missing": [k for k in missing.missing_keys if k != "lm_head.weight"],
            "unexpected": missing.unexpected_keys,
            "checksum": {name: float(value.double().sum()) for name, value in weights.items()},
        }
        with (Path(os.environ["BIPACE_TEST_FOLDER"]) / "weights.jsonl").open("a") as log:
            log.write(json.dumps(note) + "\n")

    async def ready(self):
        return True

    async def wake_up(self): ...

    async def sleep(self): ...

    async def abort_all_requests(self, **_): ...

    async def resume_generation(self): ...

    async def clear_kv_cache(self): ...

    async def release_kv_cache(self): ...

    async def resume_kv_cache(self): ...

    async def start_profile(self, **_): ...

    async def stop_profile(self): ...


class Replica(RolloutReplica):
    async def launch_servers(self):
        from transformers import AutoTokenizer

        path = self.model_config.path
        eos = AutoTokenizer.from_pretrained(path).eos_token_id
        name = f"hf_server_{self.replica_rank}_0"
        server = Server.options(name=name).remote(path, self.config.response_length, eos, self.replica_rank)
        await server.ready.remote()
        self.servers, self._server_handle, self._server_address = [server], server, name


class Adapter(BaseRollout):
    def __init__(self, config, model_config, device_mesh, replica_rank=-1, **_):
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ.get("RANK", 0)) if replica_rank == -1 else replica_rank
        self.sleep_level = 1

    async def resume(self, tags): ...

    async def release(self): ...

    async def update_weights(self, weights, global_steps=None, **_):
        state = {name: value.detach().float().cpu().clone() for name, value in weights}
        await ray.get_actor(f"hf_server_{self.replica_rank}_0").load.remote(state, global_steps)


_ROLLOUT_REGISTRY["hf", "async"] = "hf_rollout.Adapter"
RolloutReplicaRegistry.register("hf", lambda: Replica)
