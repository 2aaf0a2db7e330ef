"""What a generation batch of TRL should be credited, found another way: naive runs, games replayed, plain
forwards.
"""

import numpy as np
import torch

from bipace.core.actions import executed_key
from bipace.core.advantages import advantages
from bipace.core.rows import build_batch
from bipace.envs.base import Turn, executed_command

OVER = Turn("It is over.", valid=False)
"""What an environment of a suite says where TRL asks on after the end."""


def runs(mask):
    """(start, end) of the runs of ones, bit by bit."""
    found, begun = [], None
    for i, bit in enumerate([*mask, 0]):
        if bit and begun is None:
            begun = i
        if not bit and begun is not None:
            found.append((begun, i))
            begun = None
    return found


def completion(output, row):
    """Tokens of a row's completion and the model's own among them."""
    length = int(output["completion_mask"][row].sum())
    mask = output["tool_mask"][row][:length].tolist() if "tool_mask" in output else [1] * length
    return output["completion_ids"][row][:length].tolist(), mask


def prompt(output, row):
    return output["prompt_ids"][row][output["prompt_mask"][row].bool()].tolist()


@torch.no_grad()
def plain_states(model, tokens, layer):
    """hidden_states[layer] of one sequence alone: no padding, no hook, no dropout."""
    was = model.training
    model.eval()
    found = model(input_ids=torch.tensor([tokens]), output_hidden_states=True, use_cache=False).hidden_states[
        layer
    ][0]
    model.train(was)
    return found


def table(trainer, output, suite, tasks, calls, layer=None):
    """Columns of the table of steps, made from tokens, fresh games and plain forwards.

    Args:
        trainer: whose model and tokenizer are asked.
        output: TRL's batch.
        suite: whose games are replayed.
        tasks: the task of each row.
        calls: the commands that each row's environment got.
        layer: of the features, or None.
    """
    names = ("task", "trajectory", "t", "reward", "observation", "action", "features", "span")
    columns = {name: [] for name in names}
    # Trajectories meet in the order of their tokens.
    order = sorted(range(len(tasks)), key=lambda row: completion(output, row)[0])
    for row, task in enumerate(tasks):
        tokens, mask = completion(output, row)
        spans, game, before = runs(mask), suite.make(), prompt(output, row)
        turn = game.reset(task)
        states = None if layer is None else plain_states(trainer.model, before + tokens, layer)
        for t, (start, end) in enumerate(spans):
            command = trainer._tokenizer.decode(tokens[start:end], skip_special_tokens=True).strip()
            columns["observation"].append(turn.observation)
            if states is not None:
                columns["features"].append(states[len(before) + start - 1].numpy())
            reward, action = 0.0, ("written and never executed", command)
            if t < len(calls[row]):
                assert command == calls[row][t].strip()
                over = turn.terminated or turn is OVER
                offered, turn = turn, OVER if over else game.step(command)
                reward = turn.reward
                action = executed_key(command, executed_command(command, offered, turn), turn.valid)
            values = (task, order.index(row), t, reward, action, (row, start, end))
            for name, value in zip(
                ("task", "trajectory", "t", "reward", "action", "span"), values, strict=True
            ):
                columns[name].append(value)
    return columns


def token_values(columns, recipe, shape):
    """[B, T] the core's values on the tokens of their turns."""
    spans, features = columns["span"], columns["features"]
    rest = {k: v for k, v in columns.items() if k not in ("span", "features")}
    rows = build_batch(**rest, features=np.stack(features) if "features" in recipe.needs else None)
    values = rows.scatter(advantages(rows.batch, recipe).values)
    out = torch.zeros(shape)
    for value, (row, start, end) in zip(values, spans, strict=True):
        out[row, start:end] = float(value)
    return out
