"""Play an environment by hand: what the agent would see, and the reward it would get."""

from __future__ import annotations

from bipace.envs.base import Suite, Turn, offers_of

__all__ = ["play_in_terminal"]


def play_in_terminal(suite: Suite, task: str, *, hint: bool = False) -> bool:
    """Play one episode on standard input and output.

    An empty line shows the admissible actions where the environment lists them; `quit` or end of file leaves.

    Args:
        suite: the environment family.
        task: the task id.
        hint: print the expert's plan first.

    Returns:
        True when the task was solved.
    """
    environment = suite.make()
    turn = environment.reset(task)
    print(f"{suite.name} | {task} | {suite.family(task)} | at most {suite.max_steps} steps | quit to leave\n")
    if data := offers_of(suite).data_label:
        print(f"data: {data}\n")
    print(f"{suite.instructions}\n")
    if hint:
        print("The expert would do:\n" + "\n".join(f"  {action}" for action in suite.expert(task)) + "\n")
    print(turn.observation)
    steps, reward = 0, 0.0
    while not turn.terminated and steps < suite.max_steps:
        action = _ask(steps + 1, turn)
        if action is None:
            break
        turn = environment.step(action)
        steps, reward = steps + 1, reward + turn.reward
        print(turn.observation if turn.valid else f"{turn.observation}  (no effect)")
    print(f"\n{'Solved' if turn.won else 'Not solved'} in {steps} steps, reward {reward:g}.")
    return turn.won


def _ask(step: int, turn: Turn) -> str | None:
    while True:
        try:
            text = input(f"[{step}] > ").strip()
        except EOFError:
            return None
        if text == "quit":
            return None
        if text:
            return text
        print("\n".join(turn.admissible) or "This environment lists no actions; type a command.")
