"""Run stock verl, its V1 trainer and the plug-in on the CPU: one call is one training job in processes of its
own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import bipace
from bipace.envs.registry import get_suite
from bipace.integrations.verl.data import write_tasks

HELPERS = Path(__file__).resolve().parent / "verl_cpu"
ACTOR = Path(bipace.__file__).resolve().parent / "assets" / "actors" / "textcraft-small"
MODULES = ("cpu_platform", "hf_rollout", "bipace.integrations.verl.plugin")
LEARNING_STEPS = 8
LEARNING = {"ranks": 1, "packed": False, "steps": LEARNING_STEPS, "tasks": 8, "group": 8}
VALIDATION = ("trainer.val_before_train=True", f"trainer.test_freq={LEARNING_STEPS}")
"""A job long enough to learn, and its validation before and after: 32 tasks, four samples each."""


@dataclass(frozen=True)
class Job:
    """One finished job: what it logged per step, and its folder."""

    folder: Path
    log: Path
    metrics: dict[int, dict[str, float]]
    seconds: float

    def step(self, number: int) -> dict[str, Any]:
        """What the recorder saw at a checkpoint."""
        return json.loads((self.folder / f"step_{number}.json").read_text())

    def success(self, number: int) -> float:
        """Share of the validation episodes that were won at a step; 0 is before the first."""
        (value,) = [
            v for k, v in self.metrics[number].items() if k.startswith("val-core/") and "/acc/mean@" in k
        ]
        return value


def prepare(folder: Path) -> Path:
    """Write the data files of a job into its folder."""
    suite = get_suite(f"{HELPERS / 'easy_suite.py'}:suite")
    write_tasks(suite, "train", folder / "train.parquet")
    write_tasks(suite, "panel", folder / "val.parquet")
    return folder


# long: one list: what a job of verl on a CPU must be told
def overrides(folder: Path, *, ranks: int, packed: bool, steps: int, tasks: int, group: int) -> list[str]:
    """A small job on the CPU; what a cluster would not set is marked by its place, in the last two blocks."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    # verl asks that it divide a rank's rows, a multiple of this quotient
    micro = min(64, tasks * group // ranks)
    return [
        "trainer.v1.trainer_mode=bipace",
        "algorithm.adv_estimator=bipace",
        "+bipace.env.suite=easy_suite:suite",
        "+bipace.credit.eps=0.1",
        "+bipace.credit.mode=mean_norm",
        f"data.train_files={folder / 'train.parquet'}",
        f"data.val_files={folder / 'val.parquet'}",
        f"data.train_batch_size={tasks}",
        "data.max_prompt_length=960",
        "data.max_response_length=32",
        f"actor_rollout_ref.model.path={ACTOR}",
        f"actor_rollout_ref.model.use_remove_padding={packed}",
        f"{actor}.strategy=fsdp2",
        f"{actor}.fsdp_config.strategy=fsdp2",
        f"{actor}.optim.lr=2e-4",
        f"{actor}.ppo_mini_batch_size={tasks}",
        f"{actor}.ppo_micro_batch_size_per_gpu={micro}",
        f"{actor}.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
        f"{rollout}.n={group}",
        f"{rollout}.log_prob_micro_batch_size_per_gpu={micro}",
        f"{rollout}.calculate_log_probs=True",
        f"{rollout}.agent.num_workers=1",
        f"{rollout}.val_kwargs.n=4",
        f"{rollout}.val_kwargs.do_sample=True",
        f"{rollout}.val_kwargs.temperature=1.0",
        f"trainer.n_gpus_per_node={ranks}",
        "trainer.nnodes=1",
        "trainer.total_epochs=1000",
        f"trainer.total_training_steps={steps}",
        "trainer.val_before_train=False",
        "trainer.logger=[file]",
        f"trainer.default_local_dir={folder}",
        "data.filter_overlong_prompts=False",
        "data.dataloader_num_workers=0",
        # The CPU stands for a GPU.
        "trainer.device=cpu",
        f"{rollout}.name=hf",
        f"{rollout}.mode=async",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.free_cache_engine=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        f"{actor}.use_torch_compile=False",
        f"{actor}.fsdp_config.use_torch_compile=False",
        *(
            f"+{actor}.fsdp_config.mixed_precision.{part}_dtype=fp32"
            for part in ("param", "reduce", "buffer")
        ),
        # One machine stands for a cluster.
        "reward.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "ray_kwargs.ray_init.num_cpus=24",
        f"+ray_kwargs.ray_init.num_gpus={ranks}",
        "+ray_kwargs.ray_init.include_dashboard=False",
        "+ray_kwargs.ray_init.object_store_memory=500000000",
        "trainer.checkpoint_callback_class=recorder.Recorder",
    ]


def environment(folder: Path, modules: tuple[str, ...] = MODULES) -> dict[str, str]:
    """The environment of a job: which modules verl loads, quiet logs, one thread a process."""
    source = Path(bipace.__file__).resolve().parents[1]
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "VERL_", "PYTEST_", "CUDA_"))}
    return {
        **keep,
        "PYTHONPATH": os.pathsep.join([str(source), str(HELPERS)]),
        "VERL_USE_EXTERNAL_MODULES": ",".join(modules),
        "VERL_USE_EXTERNAL_PLUGINS": "none",
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        "BIPACE_TEST_FOLDER": str(folder),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "HF_HUB_OFFLINE": "1",
        "HYDRA_FULL_ERROR": "1",
        "VERL_LOGGING_LEVEL": "WARN",
    }


def run(
    folder: Path, arguments: list[str], name: str = "job", modules: tuple[str, ...] = MODULES
) -> tuple[int, Path]:
    """Exit status and log file of `python -m verl.trainer.main_ppo arguments`."""
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *arguments]
    with log.open("w") as out:
        done = subprocess.run(
            command,
            env=environment(folder, modules),
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=600,
        )
    return done.returncode, log


def job(folder: Path, extra: tuple[str, ...] = (), name: str = "job", **shape: Any) -> Job:
    """Run a job to its end; its data files must be in the folder.

    Raises AssertionError with the log's tail.
    """
    start = time.perf_counter()
    status, log = run(folder, [*overrides(folder, **shape), *extra], name)
    assert status == 0, log.read_text()[-6000:]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    metrics: dict[int, dict[str, float]] = {}
    for line in lines:
        metrics.setdefault(line["step"], {}).update(line["data"])
    done = Job(folder, log, metrics, time.perf_counter() - start)
    (folder / f"{name}.figures.json").write_text(json.dumps(figures(done, name, shape)))
    return done


def figures(done: Job, name: str, shape: dict[str, Any]) -> dict[str, Any]:
    """What benchmarks/verl.py reports of a job; its first step is left out: it pays for what is loaded
    once.
    """
    steps = [m for step, m in sorted(done.metrics.items()) if "group/steps" in m][1:]

    def mean(metric: str) -> float:
        return fmean(m[metric] for m in steps)

    validated = [
        step for step, m in sorted(done.metrics.items()) if any(k.startswith("val-core/") for k in m)
    ]
    return {
        "name": name,
        "ranks": shape["ranks"],
        "packed": shape["packed"],
        "steps": len(steps) + 1,
        "seconds": done.seconds,
        "rows": mean("group/steps"),
        "step_seconds": mean("timing_s/step"),
        "credit_share": mean("perf/credit_share"),
        "success": {step: done.success(step) for step in validated},
    }
