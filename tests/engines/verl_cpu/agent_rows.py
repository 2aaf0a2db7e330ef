"""The agent loop with a planner's answers in the model's place: prints the rows verl would store, as JSON."""

import asyncio
import json
import sys

from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.rollout.replica import TokenOutput

from bipace.envs.registry import get_suite
from bipace.integrations.verl.agent_loop import BipaceAgentLoop
from bipace.integrations.verl.preflight import compose_config


class Planner:
    """Answers each call with the planner's next action."""

    def __init__(self, tokenizer, plan):
        self.tokenizer, self.plan = tokenizer, iter(plan)

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        assert sampling_params["max_tokens"] == 32
        tokens = [
            *self.tokenizer.encode(next(self.plan), add_special_tokens=False),
            self.tokenizer.eos_token_id,
        ]
        return TokenOutput(token_ids=tokens, log_probs=[-0.5] * len(tokens), extra_fields={"global_steps": 3})


async def main(arguments):
    config = OmegaConf.create(compose_config(arguments))
    tokenizer = AutoTokenizer.from_pretrained(config.actor_rollout_ref.model.path)
    suite = get_suite(config.bipace.env.suite)
    task = suite.splits["panel"][0]
    loop = BipaceAgentLoop(
        trainer_config=DictConfigWrap(config), server_manager=Planner(tokenizer, suite.expert(task)),
        tokenizer=tokenizer, processor=None, dataset_cls=None, data_config=DictConfigWrap(config.data),
        hf_model_type="qwen2",
    )  # fmt: skip
    outputs = await loop.run({"temperature": 1.0}, extra_info={"task": task, "index": 0})
    rows = list_of_dict_to_tensordict([output.as_dict() for output in outputs])
    stored = [
        {
            "record": extra["bipace"], "version": extra["global_steps"], "score": float(score.sum()),
            "prompt": tokenizer.decode(prompt), "response": tokenizer.decode(response), "mask": mask.tolist(),
        }
        for extra, score, prompt, response, mask in zip(
            list(rows["extra_fields"]), rows["rm_scores"].unbind(), rows["prompts"].unbind(),
            rows["responses"].unbind(), rows["response_mask"].unbind(), strict=True,
        )
    ]  # fmt: skip
    print(json.dumps({"plan": suite.expert(task), "rows": stored}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
