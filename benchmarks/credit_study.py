# long: the parts of one page, in its order
"""The credit page docs/results/credit.md, its JSON and its figures, by one command.

    PYTHONPATH=src python benchmarks/credit_study.py [NAME...] [--truths runs/credit]

Text processes are sampled anew (their truth is exact and cheap). The actors' truths are collected by

    bipace credit textcraft-small env.split=demo --rerolls 8 --seeds 3 --out runs/credit/textcraft-demo
    bipace credit textcraft-small env.split=train --rerolls 8 --seeds 3
    bipace credit alfworld-small env.suite=alfworld env.split=gen-small env.max_steps=20 \\
      prompt.max_new_tokens=16 --rerolls 4 --seeds 3
    bipace credit runs/textcraft-bipace/textcraft/bipace-0.02/seed-0/last env.split=demo --rerolls 8 \\
      --seeds 3 --out runs/credit/textcraft-after-40

and read from there; what was not collected is left out, and the page says so. textcraft-demo-smollm2 is the
truth of textcraft-demo with SmolLM2's hidden states in place of the actor's (`bipace models fetch
smollm2-135m`, then seven minutes a seed). With names, these are measured again and the page's others are
kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from action_keys import KEYS, keyed
from credit_page import page, verdict
from scipy.stats import spearmanr

from bipace.core.advantages import Recipe, Term
from bipace.core.calibrate import prediction_error
from bipace.core.clustering import by_features
from bipace.core.estimators import recipe
from bipace.core.returns import return_to_go
from bipace.core.scan import RADII, scan
from bipace.core.steps import Ints, StepBatch
from bipace.train.places import actor_folder
from bipace.truth.candidates import Candidate, parse_candidate
from bipace.truth.reading import read_by
from bipace.truth.report import draw_scores
from bipace.truth.score import score, score_all
from bipace.truth.table import Truth, load_truth
from bipace.truth.worlds import world_truth

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results"
WORLDS = {"grid": {}, "paraphrased": {}, "aliased": {}, "random": {"states": 8, "ending": 0.05}}
ACTORS = (
    "textcraft-demo", "textcraft-demo-smollm2", "textcraft-after-40", "textcraft-small", "alfworld-small",
)  # fmt: skip
READERS = {"textcraft-demo-smollm2": ("textcraft-demo", "smollm2-135m")}
SEEDS, GROUPS, GROUP_SIZE, DEPTH = 3, 16, 8, 0.61
FIRST_READING = "bipace mode=mean_std_norm fallback=no_diff_action"
MAIN = (
    "grpo", "dr_grpo", "rloo", "gigpo", "gigpo mode=mean_norm", "hgpo", "hgpo mode=mean_norm", "bigpo",
    "diff_peer",
    "bipace", "bipace eps=0.02", "bipace eps=0.1", "bipace eps=auto", "bipace clusters=observation",
    FIRST_READING,
    "pooled", "pooled clusters=features eps=0.02", "diff_peer eps=0.02", "multiscale",
    "multiscale trajectory=true",
)  # fmt: skip
SWEEPS = {
    "Radius": [f"bipace eps={eps:g}" for eps in (0.0, *RADII)],
    "Whitening": ["bipace whiten=3 eps=0.05", "bipace whiten=3 eps=0.2", "bipace eps=auto whiten=auto"],
    "Centroid rule": ["bipace centroid=mean", "bipace centroid=leader"],
    "Fallback": [
        f"bipace{where} fallback={f}"
        for where in ("", " eps=0.02", " clusters=observation")
        for f in ("no_same_action_peer", "no_diff_action", "never")
    ],
    "The own trajectory in V": ["bipace", "bipace leave_out=trajectory", "bipace eps=0.02",
                                "bipace eps=0.02 leave_out=trajectory", "gigpo",
                                "gigpo leave_out=trajectory"],
    "Division": [
        "bipace", "bipace trajectory_mode=mean_norm", "bipace step_mode=mean_std_norm", "gigpo",
        "gigpo step_mode=mean_norm", "gigpo mode=mean_norm", "bigpo", "bigpo step_mode=mean_norm",
    ],
    "Weight of the step term": [f"bipace w={w}" for w in (0.1, 0.5, 1.0, 2.0, 10.0)],
    "Controls": [
        "bipace", "bipace clusters=chance", "bipace eps=0.02", "bipace eps=0.02 clusters=chance", "gigpo",
        "bigpo",
        "bipace clusters=observation", "gigpo similarity=0.95",
    ],
}  # fmt: skip


def at(text: str, layer: str | None) -> Candidate:
    """A candidate that reads the given layer where it names none."""
    made = parse_candidate(text)
    return made if made.layer else replace(made, layer=layer)


def shipped_layer(truth: Truth) -> str | None:
    """The layer that the shipped default, 0.61 of the depth, stands for; the last, or the only one,
    elsewhere.
    """
    depths = [int(name) for name in truth.layers if name.isdigit()]
    return str(round(DEPTH * max(depths))) if len(depths) > 1 else None


def step_alone(text: str, label: str, layer: str | None) -> Candidate:
    made = at(text, layer)  # without its trajectory term: w = infinity
    return Candidate(label, Recipe(label, made.recipe.parts[-1:]), made.layer)


def visited(batch: StepBatch, order: str, eps: float) -> Ints:
    """Clusters with a prompt group's trajectories visited in another order."""
    number = np.unique(batch.trajectory, return_inverse=True)[1]
    count = int(number.max()) + 1
    renamed = np.arange(count)[::-1] if order == "reversed" else np.random.default_rng(0).permutation(count)
    return by_features(replace(batch, trajectory=renamed[number]), eps)


def visit_orders(layer: str | None) -> list[Candidate]:
    """The greedy pass in three orders."""
    made = recipe("bipace")
    trajectory, step = made.parts
    assert isinstance(step, Term)
    others = [
        Candidate(
            f"trajectories {o}",
            Recipe(o, (trajectory, replace(step, clusters=partial(visited, order=o, eps=0.05)))),
            layer,
        )
        for o in ("reversed", "shuffled")
    ]
    return [Candidate("trajectories as collected", made, layer), *others]


def action_keys(truths: Sequence[Truth], folder: Path, layer: str | None) -> dict[str, Any]:
    """What counts as the same action: the executed command with refused ones apart or as one, or the verb."""
    alike = {
        name: [keyed(truth, folder / f"seed{number}", key) for number, truth in enumerate(truths)]
        for name, key in KEYS.items()
    }
    return {
        f"{text}, {name}": entry
        for name, those in alike.items()
        for text, entry in ablate(those, [at(t, layer) for t in ("bipace", "bipace eps=0.02")]).items()
    }


def layers(truths: Sequence[Truth]) -> list[Candidate]:
    names, radii = [name for name in truths[0].layers if name != "0"], (0.01, 0.02, 0.05, 0.1)
    return [parse_candidate(f"bipace eps={eps} layer={name}") for name in names for eps in radii]


def criterion(truths: Sequence[Truth]) -> dict[str, Any]:
    """What a scan of each seed's rollouts takes, and what it loses to the best pair of the grid."""
    made, found = recipe("bipace", eps="calibrate"), []
    for truth in truths:
        names = {name: features for name, features in truth.layers.items() if name != "0"}
        scanned = scan(truth.batch, names, truth.gradient, made)
        returns, rows = return_to_go(truth.batch, 0.95), []
        for pair in scanned.pairs:
            values = Candidate("", recipe("bipace", eps=pair.eps), pair.layer).values(truth)
            scores = score(truth, values, bootstraps=0)
            error = prediction_error(
                truth.batch, by_features(truth.with_layer(pair.layer), pair.eps), returns
            )
            cosine, pearson = float(scores["gradient_cosine"][0]), float(scores["pearson"][0])
            rows.append({**pair.to_json(), "cosine": cosine, "pearson": pearson, "prediction_error": error})
        best = max(row["cosine"] for row in rows)
        chosen = rows[scanned.pairs.index(scanned.chosen)]
        predicted = min(rows, key=lambda row: row["prediction_error"])
        ranks: Any = spearmanr([r["agreement"] for r in rows], [r["cosine"] for r in rows])
        found.append(
            {"layer": chosen["layer"], "eps": chosen["eps"], "lost": best - chosen["cosine"],
             "lost_by_prediction_error": best - predicted["cosine"], "level": scanned.level,
             "rank_correlation": float(ranks[0]), "successes": int((truth.batch.reward > 0).sum()),
             "grid": rows}
        )  # fmt: skip
    return {"seeds": found}


def ablate(truths: Sequence[Truth], candidates: Sequence[Candidate]) -> dict[str, Any]:
    return score_all(truths, candidates, bootstraps=200, details=False)["recipes"]


def ahead(truths: Sequence[Truth], layer: str | None) -> dict[str, list[float]]:
    """Cosine of `bipace` at its default less another recipe's: value and 95 % interval, both on the same
    resamples.
    """

    def drawn(text: str) -> Any:
        candidate = at(text, layer)
        each = [score(truth, candidate.values(truth), bootstraps=500)["gradient_cosine"] for truth in truths]
        return np.nanmean(each, axis=0)

    ours, out = drawn("bipace"), {}
    for text in ("gigpo", "hgpo"):
        gap = ours - drawn(text)
        resampled = gap[1:] - gap[1:].mean() + gap[0]
        out[text] = [float(gap[0]), *map(float, np.quantile(resampled, [0.025, 0.975]))]
    return out


def study(truths: Sequence[Truth]) -> dict[str, Any]:
    layer = shipped_layer(truths[0])
    found = score_all(truths, [at(text, layer) for text in MAIN])
    found["group_size"], found["layer"] = int(truths[0].identity["group_size"]), layer
    found["sections"] = {
        title: ablate(truths, [at(t, layer) for t in texts]) for title, texts in SWEEPS.items()
    }
    found["sections"]["Step term alone"] = ablate(
        truths, [step_alone(t, f"step term of {t}", layer) for t in ("gigpo", "bipace", "bipace eps=0.02")]
    )
    found["sections"]["Visit order of the greedy pass"] = ablate(truths, visit_orders(layer))
    found["sections"]["Layers and geometries"] = ablate(truths, layers(truths))
    found["criterion"] = criterion(truths)
    found["verdict"] = {**verdict(found["recipes"]), "ahead": ahead(truths, layer)}
    return found


def actor_truths(folder: Path) -> list[Truth]:
    loaded = [load_truth(path.with_suffix("")) for path in sorted(folder.glob("seed?.json"))]
    return [truth for truth in loaded if truth is not None]


def measured(name: str, truths: Path) -> dict[str, Any] | None:
    """The study of one environment; None where its truth was not collected."""
    if name in WORLDS:
        made = partial(world_truth, name, WORLDS[name], groups=GROUPS, group_size=GROUP_SIZE)
        return study([made(seed=seed) for seed in range(SEEDS)])
    folder, reader = READERS.get(name, (name, None))
    collected = actor_truths(truths / folder)
    if not collected:
        return None
    if reader:
        read = partial(read_by, folder=actor_folder(reader), layers=[DEPTH])
        collected = [read(truth, truths / folder / f"seed{i}") for i, truth in enumerate(collected)]
    found = study(collected)
    found["sections"]["Action key"] = action_keys(collected, truths / folder, found["layer"])
    return found


def notes(results: dict[str, dict[str, Any]]) -> list[str]:
    said = [
        f"Text processes: {SEEDS} seeds x {GROUPS} prompt groups x G = {GROUP_SIZE}, horizon 12, a policy "
        "that plays the best action with probability 0.4; the truth is exact. Features there are synthetic "
        "(see `bipace.truth.worlds`).",
    ]
    for name in ACTORS:
        if name not in results:
            said += ["", f"{name}: no truth was collected for this page."]
            continue
        identity = results[name]["identity"][0]
        said += [
            "",
            f"{name}: {results[name]['seeds']} seeds x {identity['groups']} prompt groups x G = "
            f"{identity['group_size']} on {identity['suite']}, split {identity['split']}, K = "
            f"{identity['rerolls']} re-rolls a state: a noisy truth; compare with its noise ceiling. "
            + _layer(identity, results[name]["layer"]),
        ]
    return said


def _layer(identity: Mapping[str, Any], layer: str | None) -> str:
    if layer is None:
        return (
            f"Hidden states at {DEPTH} of the depth of {identity['read_by']}, which reads these "
            "rollouts as chats."
        )
    return f"Layer {layer} ({DEPTH} of the depth, the shipped default) where a recipe names none."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "environments", nargs="*", help="measure these again and keep the page's others; default all"
    )
    parser.add_argument(
        "--truths", type=Path, default=Path("runs/credit"), help="where actors' truths were collected"
    )
    parser.add_argument("--out", type=Path, default=DOCS)
    arguments = parser.parse_args()
    file, known = arguments.out / "credit.json", [*ACTORS, *WORLDS]
    unknown = set(arguments.environments) - set(known)
    if unknown:
        parser.error(f"unknown {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    kept = (
        json.loads(file.read_text(encoding="utf-8"))["results"]
        if arguments.environments and file.is_file()
        else {}
    )
    found = {name: measured(name, arguments.truths) for name in arguments.environments or known}
    results = kept | {(f"world:{n}" if n in WORLDS else n): entry for n, entry in found.items() if entry}
    results = {n: results[n] for n in (*ACTORS, *(f"world:{w}" for w in WORLDS)) if n in results}
    about = {
        "command": "PYTHONPATH=src python benchmarks/credit_study.py",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "notes": notes(results),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps({"about": about, "results": results}, separators=(",", ":")) + "\n", encoding="utf-8"
    )
    (arguments.out / "credit.md").write_text(page(results, about), encoding="utf-8")
    draw_scores(results, arguments.out / "credit.png", ("pearson", "sign", "gradient_cosine"))


if __name__ == "__main__":
    main()
