"""BiPACE in one file: a tabular agent learns a key-and-door world under any recipe, with numpy alone.

    python examples/one_file.py              # BiPACE
    python examples/one_file.py grpo         # or any other recipe

Read it top to bottom; it is the whole method at toy size: roll out groups of episodes, build the table of
steps, give every step an advantage, move the policy. The trainer does the same with a language model.
"""

from __future__ import annotations

import sys

import numpy as np

import bipace

LENGTH, HORIZON = 6, 14
ACTIONS = ("left", "right", "take")
DRAWS = 40  # iterations
TASKS, GROUP = 4, 8  # prompt groups and trajectories per group


def play(policy: np.ndarray, task: int, rng: np.random.Generator) -> list[dict]:
    """One episode: walk a corridor, take the key at cell `task`, carry it to the right end."""
    place, key, steps = 0, False, []
    for _ in range(HORIZON):
        state = (task * LENGTH + place) * 2 + key
        action = rng.choice(len(ACTIONS), p=softmax(policy[state]))
        step = {
            "state": state,
            "observation": f"cell {place}{', with key' if key else ''}",
            "action": int(action),
        }
        if ACTIONS[action] == "take":
            key = key or place == task
        else:
            place = min(max(place + (1 if ACTIONS[action] == "right" else -1), 0), LENGTH - 1)
        won = key and place == LENGTH - 1
        steps.append({**step, "reward": 10.0 * won})
        if won:
            break
    return steps


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of one state's actions."""
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def state_features(states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Stand-in for a language model's hidden states: one direction per state, and a little noise."""
    directions = np.random.default_rng(0).normal(size=(TASKS * LENGTH * 2, 16))
    return (directions[states] + 0.05 * rng.normal(size=(len(states), 16))).astype(np.float32)


def main(name: str = "bipace") -> float:
    """Train and print; returns the success rate of the last iterations."""
    rng = np.random.default_rng(0)
    policy = np.zeros((TASKS * LENGTH * 2, len(ACTIONS)))
    recipe = bipace.recipe(name)
    success: list[float] = []
    for iteration in range(DRAWS):
        episodes = [(task, play(policy, task, rng)) for task in range(TASKS) for _ in range(GROUP)]
        flat = [
            (task, i, t, step) for i, (task, steps) in enumerate(episodes) for t, step in enumerate(steps)
        ]
        states = np.array([step["state"] for *_, step in flat])
        rows = bipace.build_batch(
            task=[task for task, *_ in flat],
            trajectory=[i for _, i, *_ in flat],
            t=[t for _, _, t, _ in flat],
            reward=[step["reward"] for *_, step in flat],
            observation=[step["observation"] for *_, step in flat],
            action=[step["action"] for *_, step in flat],
            features=state_features(states, rng),
        )
        found = bipace.advantages(rows.batch, recipe)
        for (*_, step), advantage in zip(flat, rows.scatter(found.values), strict=True):
            gradient = -softmax(policy[step["state"]])
            gradient[step["action"]] += 1.0
            policy[step["state"]] += 0.1 * advantage * gradient
        success.append(float(np.mean([steps[-1]["reward"] > 0 for _, steps in episodes])))
        if iteration % 5 == 4:
            seen = bipace.credit_diagnostics(rows.batch, found)
            lone = (
                f", lone clusters {seen['cluster/singleton_rate']:.0%}"
                if "cluster/singleton_rate" in seen
                else ""
            )
            print(f"iteration {iteration + 1:3d}  success {np.mean(success[-5:]):.0%}{lone}")
    return float(np.mean(success[-5:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
