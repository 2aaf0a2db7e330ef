"""The ablation page docs/results/credit.md, its JSON and its figures, by one command.

    PYTHONPATH=src python benchmarks/credit_study.py [--actor textcraft-small --truth runs/credit/textcraft-small]

Text processes are sampled anew (their truth is exact and cheap). The actor's truth is collected by

    bipace credit textcraft-small --groups 16 --group-size 16 --rerolls 8 --seeds 5

and read from there; without it the page covers the text processes alone and says so. --reader
FOLDER judges the same rollouts, the first READ of each group, on another model's hidden states.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from action_keys import KEYS, keyed
from credit_page import page, targets_by_size
from scipy.stats import spearmanr

from bipace.core.advantages import Recipe, Term
from bipace.core.calibrate import GRID, calibrate
from bipace.core.clustering import by_features, by_observation
from bipace.core.estimators import recipe
from bipace.core.steps import Ints, StepBatch
from bipace.credit.candidates import Candidate, parse_candidate
from bipace.credit.report import draw_scores
from bipace.credit.score import score, score_all
from bipace.credit.truth import Truth, load_truth
from bipace.credit.worlds import world_truth

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results"
WORLDS = {"grid": {}, "paraphrased": {}, "aliased": {}, "random": {"states": 8, "ending": 0.05}}
SEEDS, GROUPS, GROUP_SIZE = 5, 16, 16
READ, READ_LAYERS = 4, (6, 12, 24, 30, 18)
MAIN = (
    "grpo", "dr_grpo", "rloo", "gigpo", "hgpo", "bigpo", "diff_peer", "bipace", "bipace eps=auto",
    "bipace eps=0.02", "bipace clusters=observation", "pooled", "pooled mode=mean_norm",
    "pooled mode=mean_norm k=0.25 k_action=0.25", "pooled k=auto k_action=auto", "pooled clusters=features eps=auto",
    "pooled clusters=features eps=0.02",
)  # fmt: skip
SWEEPS = {
    "Radius (bipace, fixed)": [f"bipace eps={eps:g}" for eps in GRID] + ["bipace eps=auto"],
    "Whitening": ["bipace whiten=3 eps=0.1", "bipace whiten=3 eps=0.35", "bipace eps=auto whiten=auto"],
    "Centroid rule": ["bipace centroid=mean", "bipace centroid=leader", "bipace eps=auto centroid=leader"],
    "Fallback": [
        f"bipace clusters=observation fallback={f}" for f in ("no_diff_action", "no_same_action_peer", "never")
    ],
    "Normalisation": [f"{n} mode={m}" for n in ("gigpo", "bipace", "pooled") for m in ("mean_std_norm", "mean_norm")],
    "Weight of the step term": [f"bipace clusters=observation w={w}" for w in (0.1, 0.5, 1.0, 2.0, 10.0)],
    "Pseudo-members": [f"pooled k={k} k_action={a}" for k, a in ((0.1, 0.1), (0.25, 0.25), (0.5, 0.5), (1, 1), (2, 2))]
    + ["pooled k=0.5 k_action=0.0", "pooled k=auto k_action=auto"],
}  # fmt: skip


def step_alone(text: str, label: str) -> Candidate:
    """The last term of a recipe without its trajectory term: w = infinity."""
    made = parse_candidate(text)
    return Candidate(label, Recipe(label, made.recipe.parts[-1:]), made.layer)


def random_clusters(batch: StepBatch, like: Any) -> Ints:
    """As many clusters of the same sizes as another clustering, with members drawn at random in the prompt group."""
    labels = like(batch)
    out = np.empty_like(labels)
    random = np.random.default_rng(0)
    for task in np.unique(batch.task):
        rows = np.flatnonzero(batch.task == task)
        out[rows] = random.permutation(labels[rows])
    return out


def visited(batch: StepBatch, order: str) -> Ints:
    """Clusters at the default radius with a prompt group's trajectories visited in another order."""
    number = np.unique(batch.trajectory, return_inverse=True)[1]
    count = int(number.max()) + 1
    renamed = np.arange(count)[::-1] if order == "reversed" else np.random.default_rng(0).permutation(count)
    return by_features(replace(batch, trajectory=renamed[number]))


def visit_orders() -> list[Candidate]:
    """The greedy pass in three orders."""
    made = recipe("bipace")
    trajectory, step = made.parts
    assert isinstance(step, Term)
    others = [
        Candidate(f"trajectories {o}", Recipe(o, (trajectory, replace(step, clusters=partial(visited, order=o)))))
        for o in ("reversed", "shuffled")
    ]
    return [Candidate("trajectories as collected", made), *others]


def action_keys(truths: Sequence[Truth], folder: Path) -> dict[str, Any]:
    """What counts as the same action: the executed command, the text that was sent, or its first word."""
    under = {
        name: [keyed(truth, folder / f"seed{number}", key) for number, truth in enumerate(truths)]
        for name, key in KEYS.items()
    }
    texts = ("bipace clusters=observation", "pooled")
    return {
        f"{text}, {key}": entry
        for key, those in under.items()
        for text, entry in ablate(those, [parse_candidate(t) for t in texts]).items()
    }


def sides() -> list[Candidate]:
    """State side alone, action side alone, and keys: what each half of the method brings."""
    observed = {"clusters": "observation"}
    base = recipe("bipace", **observed)
    trajectory, step = base.parts
    assert isinstance(step, Term)
    shuffled = replace(step, clusters=partial(random_clusters, like=by_observation))
    return [
        Candidate("neither (gigpo)", recipe("gigpo")),
        Candidate("state side (bigpo, eps=auto)", recipe("bigpo", eps="auto")),
        Candidate("action side (bipace on observations)", base),
        Candidate("both (bipace, eps=auto)", recipe("bipace", eps="auto")),
        Candidate("lexical (gigpo, similarity 0.95)", recipe("gigpo", similarity=0.95)),
        Candidate("random clusters of the same sizes", Recipe("random", (trajectory, shuffled))),
        step_alone("gigpo", "step term alone: gigpo"),
        step_alone("bipace clusters=observation", "step term alone: bipace on observations"),
        step_alone("bipace clusters=observation mode=mean_norm", "step term alone, not divided: on observations"),
        step_alone("bipace eps=auto", "step term alone: bipace, eps=auto"),
        step_alone("bipace eps=0.02 mode=mean_norm", "step term alone, not divided: bipace, eps=0.02"),
    ]


def layers(truths: Sequence[Truth]) -> list[Candidate]:
    found = []
    for name in truths[0].layers:
        found += [parse_candidate(f"bipace eps={eps} layer={name}") for eps in (0.1, "auto")]
        found.append(parse_candidate(f"pooled clusters=features eps=auto layer={name}"))
    return found


def criterion(truths: Sequence[Truth]) -> dict[str, Any]:
    """How well the label-free criterion ranks clusterings: its error against the step term's accuracy."""
    rows = []
    for number, truth in enumerate(truths):
        for layer in truth.layers:
            batch = truth.with_layer(layer)
            chosen = calibrate(batch, directions=(0, 3))
            for whiten, eps, error in chosen.curve:
                clusters = partial(by_features, eps=eps, whiten=whiten)
                step = recipe("bipace", mode="mean_norm").parts[-1]
                assert isinstance(step, Term)
                candidate = Candidate("", Recipe("step", (replace(step, clusters=clusters),)), layer)
                pearson = float(score(truth, candidate.values(truth), bootstraps=0)["pearson"][0])
                rows.append(
                    {"seed": number, "layer": layer, "whiten": whiten, "eps": eps, "error": error, "pearson": pearson}
                )
    ranks, regrets = [], []
    for number in range(len(truths)):
        mine = [r for r in rows if r["seed"] == number]
        errors, accuracies = ([r[k] for r in mine] for k in ("error", "pearson"))
        ranked = len(set(errors)) > 1 and len(set(accuracies)) > 1
        ranks.append(float(spearmanr(errors, accuracies).statistic) if ranked else None)
        picked = min(mine, key=lambda r: r["error"])
        regrets.append(max(r["pearson"] for r in mine) - picked["pearson"])
    return {"rank_correlation": ranks, "regret": regrets, "clusterings": len(rows) // len(truths)}


def ablate(truths: Sequence[Truth], candidates: Sequence[Candidate]) -> dict[str, Any]:
    return score_all(truths, candidates, bootstraps=200, details=False)["recipes"]


def study(truths: Sequence[Truth]) -> dict[str, Any]:
    size = int(truths[0].identity["group_size"])
    smaller = [g for g in (4, 8) if g < size]
    found = score_all(truths, [parse_candidate(text) for text in MAIN], group_sizes=smaller)
    found["group_size"] = size
    found["sections"] = {"What each side brings": ablate(truths, sides())}
    for title, texts in SWEEPS.items():
        found["sections"][title] = ablate(truths, [parse_candidate(t) for t in texts])
    found["sections"]["Visit order of the greedy pass"] = ablate(truths, visit_orders())
    found["sections"]["Layers and geometries"] = ablate(truths, layers(truths))
    found["criterion"] = criterion(truths)
    return found


def actor_truths(folder: Path | None) -> list[Truth]:
    if folder is None or not folder.is_dir():
        return []
    loaded = [load_truth(path.with_suffix("")) for path in sorted(folder.glob("seed?.json"))]
    return [truth for truth in loaded if truth is not None]


def reread(folder: Path, reader: Path) -> list[Truth]:
    """The actor's truth with the features of another model, for the first members of every group."""
    from bipace.credit.reading import read_by

    paths = [folder / f"seed{number}" for number in range(len(actor_truths(folder)))]
    truths = actor_truths(folder)
    cut = [read_by(t, path, reader, READ_LAYERS, group_size=READ) for t, path in zip(truths, paths, strict=True)]
    return [replace(t, identity={**t.identity, "group_size": READ}) for t in cut]


def measured(names: Sequence[str], actor: str, truth: Path, reader: Path | None) -> dict[str, dict[str, Any]]:
    """The study of each named environment; of the actor only where its truth was collected."""
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        if name == f"{actor}, read":
            truths = reread(truth, reader) if reader else []
        elif name == actor:
            truths = actor_truths(truth)
        else:
            made = partial(world_truth, name, WORLDS[name], groups=GROUPS, group_size=GROUP_SIZE)
            truths = [made(seed=seed) for seed in range(SEEDS)]
        if truths:
            found = results[f"world:{name}" if name in WORLDS else name] = study(truths)
            if name == actor:
                found["sections"]["Action key"] = action_keys(truths, truth)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environments", nargs="*", help="measure these again and keep the page's others; default all")
    parser.add_argument("--actor", default="textcraft-small", help="what the collected truth is of")
    parser.add_argument("--truth", type=Path, default=Path("runs/credit/textcraft-small"))
    parser.add_argument("--reader", type=Path, help="a Hugging Face folder: a second geometry, e.g. SmolLM2")
    arguments = parser.parse_args()
    file = DOCS / "credit.json"
    known = [*WORLDS, arguments.actor, f"{arguments.actor}, read"]
    unknown = set(arguments.environments) - set(known)
    if unknown:
        parser.error(f"unknown {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    kept = json.loads(file.read_text(encoding="utf-8"))["results"] if arguments.environments and file.is_file() else {}
    results = kept | measured(arguments.environments or known, arguments.actor, arguments.truth, arguments.reader)
    order = [f"world:{name}" for name in WORLDS] + known[-2:]
    results = {name: results[name] for name in order if name in results}
    notes = [
        f"Text processes: {SEEDS} seeds x {GROUPS} prompt groups x G = {GROUP_SIZE}, horizon 12, a policy that plays "
        "the best action with probability 0.4; the truth is exact. Features there are synthetic (see `credit.worlds`).",
        "",
    ]
    if arguments.actor in results:
        found = results[arguments.actor]
        identity = found["identity"][0]
        notes.append(
            f"{arguments.actor}: {found['seeds']} seeds x {identity['groups']} prompt groups x G = "
            f"{identity['group_size']} on {identity['suite']}, K = {identity['rerolls']} re-rolls a state: "
            "a noisy truth; compare with its noise ceiling. Default layer: the last block's output."
        )
        if known[-1] in results:
            notes += [
                "",
                f"{known[-1]}: the same rollouts, the first {READ} of each group, with the hidden states of "
                f"{results[known[-1]]['identity'][0]['read_by']} (layers {READ_LAYERS}; default the last named) in "
                "place of the actor's. Its tables compare with those of G = 4 above, not of G = 16.",
            ]
    else:
        notes.append("No actor's truth was collected for this page.")
    for found in results.values():
        found["targets"] = targets_by_size(found)
    about = {
        "command": "PYTHONPATH=src python benchmarks/credit_study.py",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "notes": notes,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
    DOCS.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"about": about, "results": results}, separators=(",", ":")) + "\n", encoding="utf-8")
    (DOCS / "credit.md").write_text(page(results, about), encoding="utf-8")
    draw_scores(results, DOCS / "credit.png", ("pearson", "sign", "gradient_cosine"))


if __name__ == "__main__":
    main()
