"""Environments in processes of their own: the same play, and a fault costs one environment."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bipace.envs.base import Offers, Suite, offers_of
from bipace.envs.isolation import EnvironmentLost, isolate
from bipace.envs.registry import get_suite

FAULTY = """
import os, sys, time
from dataclasses import dataclass, field
from bipace.envs.base import Turn

@dataclass
class Environment:
    count: int = 0
    def reset(self, task):
        self.count = 0
        if task == "hangs-at-reset":
            time.sleep(60)
        return Turn(f"pid {os.getpid()}", admissible=("go", "stay"))
    def step(self, action):
        self.count += 1
        if action == "raise": raise KeyError("broke down")
        if action == "exit": sys.exit(3)
        if action == "die": os._exit(1)
        if action == "spin":
            while True: pass
        if action == "None": return None
        return Turn(f"{action} {self.count}", 1.0, True, True, False)
    def copy(self):
        raise NotImplementedError

@dataclass
class Faulty:
    name: str = "faulty"
    max_steps: int = 3
    instructions: str = ""
    splits: dict = field(default_factory=lambda: {"all": ("a", "b")})
    def make(self): return Environment()
    def family(self, task): return task
    def expert(self, task): return ("go",)
"""


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "faulty.py"
    path.write_text(FAULTY)
    return f"{path}:Faulty"


@pytest.fixture(scope="module")
def suite(where):
    return isolate(get_suite(where), where, 20.0)


def test_it_is_the_suite_it_stands_for(suite):
    assert isinstance(suite, Suite)
    assert (suite.name, suite.max_steps, suite.splits["all"]) == ("faulty", 3, ("a", "b"))
    assert (suite.family("a"), suite.expert("a")) == ("a", ("go",))


def test_textcraft_plays_the_same(where):
    own = get_suite("textcraft")
    task = own.splits["train"][0]
    here, there = own.make(), isolate(own, "textcraft", 60.0).make()
    assert here.reset(task) == there.reset(task)
    for action in ("inventory", "craft nonsense", *own.expert(task)):
        assert here.step(action) == there.step(action)


def test_every_environment_has_its_own_process_and_state(suite):
    a, b = suite.make(), suite.make()
    pids = {e.reset("a").observation for e in (a, b)} | {f"pid {os.getpid()}"}
    assert len(pids) == 3
    assert a.step("go").observation == "go 1"
    assert b.step("go").observation == "go 1"
    turn = a.step("stay")
    assert (turn.observation, turn.reward, turn.terminated, turn.won, turn.valid) == (
        "stay 2",
        1.0,
        True,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("action", "message"),
    [("raise", "KeyError: 'broke down'"), ("exit", "SystemExit: 3"), ("die", "gone"), ("None", "TypeError")],
)
def test_a_fault_is_named_and_the_others_go_on(suite, action, message):
    a, b = suite.make(), suite.make()
    a.reset("a"), b.reset("a")
    with pytest.raises(EnvironmentLost, match=message):
        a.step(action)
    assert b.step("go").observation == "go 1"


def test_what_hangs_is_killed(suite, where):
    impatient = isolate(get_suite(where), where, 0.3)
    environment = impatient.make()
    pid = int(environment.reset("a").observation.split()[1])
    for action, message in (("spin", "no answer to step within 0.3 s"), ("go", "gone")):
        with pytest.raises(EnvironmentLost, match=message):
            environment.step(action)
    assert ended(pid)
    with pytest.raises(EnvironmentLost, match="no answer to reset"):
        impatient.make().reset("hangs-at-reset")


def test_a_copy_goes_its_own_way_from_the_same_state(suite):
    a = suite.make()
    a.reset("a"), a.step("go")
    b = a.copy()
    assert b.step("stay").observation == "stay 2"
    assert a.step("go").observation == "go 2"


def test_the_server_is_started_again_when_it_died_and_ends_with_its_suite(where):
    suite = isolate(get_suite(where), where, 20.0)
    environment = suite.make()
    environment.reset("a")
    os.kill(suite._server._process.pid, signal.SIGKILL)
    suite._server._process.wait()
    assert suite.make().reset("a").observation.startswith("pid ")
    hanging = suite.make()
    pid = int(hanging.reset("a").observation.split()[1])
    del suite, hanging, environment
    assert ended(pid)


def test_a_suite_the_server_cannot_load_is_named(where):
    with pytest.raises(EnvironmentLost, match=r"no file 'absent\.py'"):
        isolate(get_suite(where), "absent.py:x", 20.0).make()


def ended(pid):
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
            return True
        time.sleep(0.05)
    return False


def test_what_a_suite_offers_is_still_offered_in_processes_of_its_own():
    suite = get_suite("textcraft")
    labelled = replace(suite, offers=Offers(data_label="made here", provenance={"seed": "7"}, marks=("|",)))
    assert offers_of(isolate(labelled, "textcraft", 5.0)) == labelled.offers
    assert offers_of(isolate(suite, "textcraft", 5.0)) == suite.offers
    with pytest.raises(TypeError, match=r"textcraft\.offers: a dict, expected bipace\.envs\.base\.Offers"):
        offers_of(replace(suite, offers={"data_label": "x"}))
