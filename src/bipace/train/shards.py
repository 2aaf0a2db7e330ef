"""An iteration's work in shards, computed side by side or one after the other with the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bipace.rollout.collect import Collector
from bipace.rollout.records import Trajectory
from bipace.train.gradient import Gradient, Part
from bipace.train.shard_process import ShardProcess
from bipace.train.shard_work import Play, Work
from bipace.train.split import Split, cut, shard_seeds
from bipace.train.timing import Beside

__all__ = ["Shards"]


class Shards:
    """Computes shards: the k-th by process k modulo their number; this process is number 0.

    Every request carries all that its answer follows from, the weights included, so any process can compute
    any shard. What crosses is small beside the work: the tokens of an iteration, the states kept with them,
    and per optimizer step the weights and the gradient of an actor of at most a few megabytes.

    Args:
        work: this process's own actor and collector.
        split: how many shards and processes.
        checkpoint: what the run's actor was loaded from; the other processes load the same, when they are
            first needed.
        threads: CPU threads of each process.
    """

    def __init__(self, work: Work, split: Split, checkpoint: Path | None, threads: int) -> None:
        self.work, self.split = work, split
        self.beside = Beside()
        self._checkpoint, self._threads = checkpoint, threads
        self._others: list[ShardProcess] = []

    def collect(
        self, collector: Collector, tasks: Sequence[str], copies: int, *, temperature: float, seed: int
    ) -> list[Trajectory]:
        """Play `copies` episodes of every task, task-major (`bipace.rollout.collect.Collector.collect`)."""
        self.work.collector = collector
        seeds = shard_seeds(seed, self.split.shards)
        requests = [
            Play(part, copies, temperature, own, collector.layer)
            for part, own in zip(cut(tasks, self.split.shards), seeds, strict=True)
        ]
        return [trajectory for found in self._all(requests) for trajectory in found]

    def gradients(self, parts: Sequence[Part]) -> list[Gradient]:
        """The gradients of a mini-batch's parts, in their order."""
        return self._all(parts)

    @property
    def processes(self) -> list[int]:
        """Ids of the processes beside this one that have been started."""
        return [process.number for process in self._others]

    def close(self) -> None:
        """End the other processes; those that are needed again are started anew."""
        for process in self._others:
            process.close()
        self._others = []

    def _all(self, requests: Sequence[Play | Part]) -> list[Any]:
        answers: list[Any] = [None] * len(requests)
        number = self.split.processes
        try:
            busy = self._hand_out(requests)
            for index in range(0, len(requests), number):
                answers[index] = self.work.do(requests[index])
            for k, process in enumerate(busy, start=1):
                said = process.answer()
                answers[k::number] = said.values
                self.beside.note(process.number, said.memory_mb, said.waited)
        except (
            BaseException
        ):  # an order may be under way: what it comes to must not be taken for the next one's
            self.close()
            raise
        return answers

    def _hand_out(self, requests: Sequence[Play | Part]) -> list[ShardProcess]:
        """Start what is missing and hand each other process its share; returns those that have one."""
        config, needed = self.work.config, min(self.split.processes, len(requests)) - 1
        while len(self._others) < needed:
            self._others.append(ShardProcess(config, self._checkpoint, self._threads))
        busy = self._others[: max(needed, 0)]
        weights = [p.detach() for p in self.work.actor.model.parameters() if p.requires_grad] if busy else []
        for k, process in enumerate(busy, start=1):
            process.ask(weights, requests[k :: self.split.processes])
        return busy
