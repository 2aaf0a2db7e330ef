# pyright: reportMissingImports=false
# verl lives in an environment of its own (it wants another transformers), where `make test-engines` runs
# this.
"""Checks of a cluster before a job.

`python -m bipace.integrations.verl.preflight` with the job's own arguments.

Each check answers in one plain line; the exit status is the number of checks that failed. `--dry-run` ends
with two real steps, without saving, validating or logging to a service.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bipace.envs.registry import get_suite
from bipace.integrations.common.capture import layer_index
from bipace.integrations.common.guards import select
from bipace.integrations.common.preflight import Finding, Report, checked, root_error
from bipace.integrations.common.settings import Settings
from bipace.integrations.verl.guards import check_config, check_version

__all__ = ["compose_config", "main", "run_checks"]

PACKAGES = ("verl", "torch", "transformers", "ray", "tensordict", "TransferQueue")
LAYER = "bipace.features.layer"
DRY_RUN = (
    "trainer.total_training_steps=2",
    "trainer.save_freq=-1",
    "trainer.test_freq=-1",
    "trainer.val_before_train=false",
    "trainer.resume_mode=disable",
    "trainer.logger=[console]",
)


def compose_config(
    overrides: Sequence[str], name: str = "ppo_trainer", folder: Path | None = None
) -> dict[str, Any]:
    """Verl's whole configuration as plain values, composed as its own command line composes it.

    Raises:
        hydra.errors.HydraException: an unknown key or file.
    """
    from hydra import compose, initialize_config_dir, initialize_config_module
    from omegaconf import OmegaConf

    schema = "hydra.searchpath=[pkg://verl.trainer.config]"
    if folder is None:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose(config_name=name, overrides=list(overrides))
    else:
        with initialize_config_dir(str(folder.resolve()), version_base=None):
            config = compose(config_name=name, overrides=[schema, *overrides])
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return plain


def run_checks(config: dict[str, Any]) -> Iterator[Finding]:
    """The checks in the order in which a failure would hide the next."""
    yield checked("versions", _versions)
    settings: list[Settings] = []

    def configuration() -> str:
        settings.append(check_config(config))
        return f"{settings[0].recipe().name} on {settings[0].env.suite}"

    yield checked("configuration", configuration)
    if not settings:
        return
    yield checked("model", lambda: _model(config, settings[0]))
    for key in ("data.train_files", "data.val_files"):
        yield checked(key, lambda key=key: _data(config, settings[0], key))
    yield checked("workers", lambda: _workers(config))


def _versions() -> str:
    check_version(importlib.metadata.version("verl"))
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)


def _model(config: dict[str, Any], settings: Settings) -> str:
    from transformers import AutoConfig, AutoTokenizer

    path = select(config, "actor_rollout_ref.model.path")
    trust = bool(select(config, "actor_rollout_ref.model.trust_remote_code", False))
    layers = AutoConfig.from_pretrained(path, trust_remote_code=trust).get_text_config().num_hidden_layers
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust)
    if not tokenizer.chat_template:
        raise ValueError(f"actor_rollout_ref.model.path: the tokenizer of {path} has no chat template")
    if not settings.captures:
        return f"{layers} layers; this recipe needs no hidden states"
    return (
        f"{layers} layers; features are hidden_states[{layer_index(settings.features.layer, layers, LAYER)}]"
    )


def _data(config: dict[str, Any], settings: Settings, key: str) -> str:
    from pyarrow import parquet

    files = select(config, key)
    paths = [Path(files)] if isinstance(files, str) else [Path(file) for file in files or ()]
    rows: list[dict[str, Any]] = []
    for path in paths:
        if not path.is_file():
            raise ValueError(
                f"{key}: no file {path}; make it with python -m bipace.integrations.verl.data --suite "
                f"{settings.env.suite} --split ... --out {path}"
            )
        rows += parquet.read_table(path).to_pylist()
    tasks = [info["task"] for row in rows if "task" in (info := row.get("extra_info") or {})]
    if not tasks or len(tasks) < len(rows):
        raise ValueError(
            f"{key}: {'no rows' if not rows else 'rows without extra_info.task'}, which names the task"
        )
    agents = {row.get("agent_name") for row in rows}
    default = select(config, "actor_rollout_ref.rollout.agent.default_agent_loop")
    if agents != {"bipace"} and default != "bipace":
        raise ValueError(f"{key}: rows name the agents {sorted(map(str, agents))}, expected bipace")
    get_suite(settings.env.suite).make().reset(tasks[0])
    return f"{len(rows)} tasks; {tasks[0]!r} starts"


def _probe() -> str:
    """What is wrong with a Ray worker that imports verl, as a fresh worker of the job would.

    Empty where nothing is.
    """
    import verl  # noqa: F401  (the import is what loads plug-ins)
    from verl.workers.engine.base import EngineRegistry

    engine = EngineRegistry.get_engine_cls("language_model", "fsdp2")
    ours = engine.__module__.startswith("bipace")
    return "" if ours else "verl there does not load bipace.integrations.verl.plugin"


def _workers(config: dict[str, Any]) -> str:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    started = not ray.is_initialized()
    if started:
        options = {k: v for k, v in (select(config, "ray_kwargs.ray_init") or {}).items() if v is not None}
        ray.init(**options, log_to_driver=False)
    wrong: list[str] = []
    try:
        probe = ray.remote(num_cpus=0, max_retries=0)(_probe)
        nodes = [node for node in ray.nodes() if node["Alive"]]
        here = [NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False) for node in nodes]
        answers = [probe.options(scheduling_strategy=strategy).remote() for strategy in here]
        for node, answer in zip(nodes, answers, strict=True):
            try:
                problem = ray.get(answer, timeout=300)
            except Exception as error:  # a node without bipace or verl fails before the probe can answer
                problem = root_error(str(error)) or f"{type(error).__name__}: {error}"
            if problem:
                wrong.append(f"{node['NodeManagerHostname']}: {problem}")
    finally:
        if started:
            ray.shutdown()
    if wrong:
        raise RuntimeError(
            f"{'; '.join(wrong)}. Install bipace[verl] on every node and set "
            "VERL_USE_EXTERNAL_MODULES=bipace.integrations.verl.plugin in its environment before `ray start`"
        )
    return f"{len(nodes)} node(s) load the plug-in"


def _dry_run(command: Sequence[str]) -> Finding:
    """Two real steps, their output passed through as it comes."""
    kept: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            kept.append(line)
    if process.returncode == 0:
        return Finding("dry run", True, "two steps ran")
    error = root_error("".join(kept)) or "its output above ends without an error's name (killed for memory?)"
    return Finding("dry run", False, f"exit status {process.returncode}; {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the number of failed checks."""
    parser = argparse.ArgumentParser(prog="python -m bipace.integrations.verl.preflight", description=__doc__)
    parser.add_argument("--config-dir", type=Path, help="folder of the recipe, as for verl.trainer.main_ppo")
    parser.add_argument("--config-name", default="ppo_trainer", help="the recipe")
    parser.add_argument("--dry-run", action="store_true", help="also run two real steps")
    given, overrides = parser.parse_known_args(arguments)
    report = Report()
    try:
        config = compose_config(overrides, given.config_name, given.config_dir)
    except Exception as error:  # hydra's own errors name the key
        report.add(Finding("configuration", False, f"{type(error).__name__}: {error}"))
        return 1
    for finding in run_checks(config):
        report.add(finding)
    if given.dry_run and not report.failed:
        folder = ["--config-dir", str(given.config_dir)] if given.config_dir else []
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *folder, "--config-name", given.config_name]
        report.add(_dry_run([*command, *overrides, *DRY_RUN]))
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
