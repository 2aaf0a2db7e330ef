"""One rank of a job that `torch.distributed.run` starts: two steps, and what this rank saw of the first
batch.

python -m torch.distributed.run --nproc_per_node 2 rank.py FOLDER KIND RECIPE
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trl_cpu import oracle
from trl_cpu.small import (
    SUITE_STEPS,
    GRPOTrainer,
    StepCreditTrainer,
    easy,
    make,
    recorded,
    tokenizer,
    weights,
)


def main(folder, kind, recipe):
    kind = {"stock": GRPOTrainer, "ours": StepCreditTrainer}[kind]
    own = tokenizer()
    # Eight rollouts a prompt and twelve rows a rank: the second of three prompt groups lies on both ranks.
    trainer = make(
        kind, folder, suite=easy(), tasks=1, group=8, recipe=recipe, processing_class=own,
        environment_factory=recorded(easy(), own), steps=SUITE_STEPS if recipe != "grpo" else None,
        per_device_train_batch_size=12, max_steps=2,
        ddp_backend="gloo", log_completions=False,
    )  # fmt: skip
    seen = []
    read = trainer._generate_and_score_completions

    def kept(inputs):
        output = read(inputs)
        seen.append((output, [dict(x) for x in inputs], [list(e.calls) for e in trainer.environments]))
        return output

    trainer._generate_and_score_completions = kept
    before = weights(trainer)
    start = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    trainer.train()
    end = weights(trainer)
    output, inputs, calls = seen[0]
    trainer.model.load_state_dict(start)
    layer = 1 if recipe == "bipace" else None
    columns = oracle.table(trainer, output, easy(), [x["task"] for x in inputs], calls, layer)
    columns["features"] = [v.tolist() for v in columns["features"]]
    columns["tokens"] = [oracle.completion(output, row)[0] for row in range(len(inputs))]
    rank = dist.get_rank()
    (Path(folder) / f"rank{rank}.json").write_text(
        json.dumps(
            {
                "columns": columns,
                "advantages": output["advantages"].tolist(),
                "losses": [float(h["loss"]) for h in trainer.state.log_history if "loss" in h],
                "moved": (end - before).abs().max().item(),
                "metrics": [h for h in trainer.state.log_history if "loss" in h][:1],
            }
        )
    )
    torch.save(end, Path(folder) / f"weights{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
