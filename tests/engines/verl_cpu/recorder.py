"""verl's own hook on a saved checkpoint, used to write down what a step saw. Not part of the product."""

import json
from pathlib import Path

import numpy as np
import transfer_queue as tq
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback


def _rows(column):
    return [row.tolist() for row in column.unbind()]


class Recorder(CheckpointCallback):
    def on_save(self, *, trainer, global_step, checkpoint_dir, async_save):
        handed = trainer.handed
        data = tq.kv_batch_get(
            keys=handed.keys,
            partition_id="train",
            select_fields=["prompts", "responses", "response_mask", "advantages", "old_log_probs"],
        )
        folder = Path(trainer.config.trainer.default_local_dir)
        if handed.features is not None:
            np.save(folder / f"features_{global_step}.npy", handed.features)
        dump = {
            "keys": handed.keys,
            "records": handed.records,
            "padding": handed.padding,
            **{name: _rows(data[name]) for name in data.keys()},  # noqa: SIM118  (a TensorDict's `in` looks at rows)
        }
        (folder / f"step_{global_step}.json").write_text(json.dumps(dump))
