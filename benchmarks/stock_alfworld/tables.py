"""Rebuild src/bipace/envs/alfworld/data/tables.json from an unpacked alfworld 0.4.2 wheel (MIT).

    python -m pip download --no-deps alfworld==0.4.2 && unzip -q alfworld-0.4.2-*.whl -d wheel
    python benchmarks/stock_alfworld/tables.py wheel

The tables are facts read from the wheel's data: which rooms there are, with their receptacles and classes of
objects, what a receptacle can hold, and what can be done to an object. `constants.py` is read as literals,
never executed.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parents[2] / "src" / "bipace" / "envs" / "alfworld" / "data" / "tables.json"
ROOMS = {"kitchen": 0, "living room": 200, "bedroom": 300, "bathroom": 400}
# Things that other things can be put into but that are carried about: the games treat them as objects.
MOVABLE = {"Bowl", "Box", "Cup", "Mug", "Pan", "Plate", "Pot"}
# Listed with what they hang on, but never picked up in the games.
FIXED = {"PaperTowel", "ToiletPaperRoll"}
LAMPS = ("DeskLamp", "FloorLamp")
# Scenes of the benchmark's unseen split, beside its test scenes (1-6 of each kind): kept out of training
# rooms.
HELD_OUT = {10, 219, 308, 424}


def constants(path: Path) -> dict[str, Any]:
    """The literal values of VAL_ACTION_OBJECTS and VAL_RECEPTACLE_OBJECTS."""
    values = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id.startswith("VAL_")
        ):
            values[node.targets[0].id] = ast.literal_eval(node.value)
    return values


def room(folder: Path, scene: int, receptacles: set[str], objects: set[str]) -> dict[str, Any]:
    """Receptacle counts and classes of objects of one scene."""
    reachable = json.loads((folder / f"FloorPlan{scene}-openable.json").read_text(encoding="utf-8"))
    present = set(json.loads((folder / f"FloorPlan{scene}-objects.json").read_text(encoding="utf-8")))
    counts = Counter(name.split("|")[0] for name in reachable)
    if counts.pop("Sink", 0) or "SinkBasin" in present:
        counts["SinkBasin"] = max(counts["SinkBasin"], 1)
    if counts.pop("Bathtub", 0) or "BathtubBasin" in present:
        counts["BathtubBasin"] = max(counts["BathtubBasin"], 1)
    for kind in present & receptacles:
        counts[kind] = counts[kind] or (4 if kind == "StoveBurner" else 1)
    return {
        "scene": scene,
        "held_out": scene % 100 <= 6 or scene in HELD_OUT,
        "receptacles": {kind: n for kind, n in sorted(counts.items()) if kind in receptacles and n},
        "objects": sorted(present & objects),
    }


def main(wheel: Path) -> None:
    source = wheel / "alfworld" / "gen"
    tables = constants(source / "constants.py")
    held = tables["VAL_RECEPTACLE_OBJECTS"]
    tops = held.pop("TableTop")
    held.update(DiningTable=tops, CoffeeTable=tops, SideTable=tops)
    fits = {
        kind: sorted(name for name in things if not name.endswith("Sliced") and name not in FIXED)
        for kind, things in sorted(held.items())
        if kind not in MOVABLE
    }
    objects = {name for things in fits.values() for name in things}
    able = {
        name.lower(): sorted(thing for thing in things if not thing.endswith("Sliced"))
        for name, things in tables["VAL_ACTION_OBJECTS"].items()
    }
    rooms = {
        kind: [room(source / "layouts", first + n, set(fits), objects | set(LAMPS)) for n in range(1, 31)]
        for kind, first in ROOMS.items()
    }
    content = {
        "source": "alfworld 0.4.2 (gen/constants.py, gen/layouts); MIT, (c) 2020 Mohit Shridhar and others",
        "able": able,
        "fits": fits,
        "rooms": rooms,
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).replace('{"held_out"', '\n{"held_out"')
    OUT.write_text(text + "\n", encoding="utf-8")
    print(f"{OUT}: {len(text)} bytes, {sum(map(len, rooms.values()))} rooms")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
