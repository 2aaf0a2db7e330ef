"""Messages between the processes of one run, over a socket that no one else has.

Nothing of it reaches a disk.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

__all__ = ["Answer", "Order", "receive", "send"]


@dataclass(frozen=True)
class Order:
    """Requests to a process, with the weights to compute them with.

    Attributes:
        weights: the trained parameters, in the model's order.
        requests: `bipace.train.shard_work.Work.do` answers each.
    """

    weights: list[torch.Tensor]
    requests: list[Any]


@dataclass(frozen=True)
class Answer:
    """What a process says to an order, and when it has started.

    Attributes:
        values: one answer a request.
        problem: why there are none; empty where all went well.
        memory_mb: the most memory that the process has held so far.
        waited: seconds so far in which it could have run but had no core; None where the system does not
            tell.
    """

    values: list[Any]
    problem: str = ""
    memory_mb: float = 0.0
    waited: float | None = None


class _Pickler(pickle.Pickler):
    """Tensors travel as arrays: as they are, in a tenth of the time that torch's own way takes."""

    def reducer_override(self, value: Any) -> Any:
        """How a tensor is taken apart; everything else as usual."""
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        array = value.detach().cpu()
        if array.dtype == torch.bfloat16:  # numpy has none, and float32 holds each of its numbers
            return _bfloat16, (array.float().numpy(),)
        return torch.from_numpy, (array.numpy(),)


def _bfloat16(array: Any) -> torch.Tensor:
    return torch.from_numpy(array).bfloat16()


def send(connection: Connection, message: Any) -> None:
    """Send a message. Raises OSError where the other end is closed."""
    buffer = io.BytesIO()
    dumper: Callable[[Any], None] = _Pickler(buffer, protocol=5).dump
    dumper(message)
    connection.send_bytes(buffer.getbuffer())


def receive(connection: Connection) -> Any:
    """The next message. Raises EOFError or OSError where the other end is closed."""
    return pickle.loads(connection.recv_bytes())
