"""Commands that judge credit.

`credit` on fresh rollouts with a known truth, `analyze` on rollouts you already have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bipace.cli.arguments import Overrides
from bipace.cli.outputs import check_file, check_folder, starts_with
from bipace.files import write_json
from bipace.train.extras import require

__all__ = ["analyze", "credit"]

_WORLD = "world:"


# long: a parameter an option, with the words that --help shows
def credit(
    source: Annotated[
        str, typer.Argument(help="world:NAME (exact truth), a shipped actor, a run or a model folder")
    ],
    overrides: Overrides = None,
    recipe: Annotated[
        list[str] | None, typer.Option(help="'bipace eps=0.02 layer=1'; default: all shipped")
    ] = None,
    groups: Annotated[int, typer.Option(min=1, help="prompt groups a seed")] = 16,
    group_size: Annotated[int, typer.Option(help="trajectories a prompt group (G)")] = 8,
    smaller: Annotated[list[int] | None, typer.Option(help="judge on this smaller G too")] = None,
    rerolls: Annotated[int, typer.Option(help="continuations a state (K)")] = 8,
    features: Annotated[
        str | None, typer.Option(help="judge on this model's hidden states at features.layer")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="independent collections")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="where truths are kept; default runs/credit/SOURCE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measure how close recipes' advantages are to the true ones, on the same rollouts.

    The truth is collected once and kept; new recipes are judged in seconds. Examples: `bipace credit
    world:grid` · `bipace credit textcraft-small --seeds 5` · `bipace credit runs/demo --recipe gigpo --recipe
    'bipace eps=0.02'`
    """
    if source.startswith(_WORLD) and features is None:
        require("bipace credit world:NAME", "report")
    else:
        require("bipace credit ACTOR", "train")

    from bipace.cli.credit import actor_truths, chosen, judge, reread, world_truths
    from bipace.truth.report import draw_scores, hypothesis_table, score_table

    chosen(recipe or ())  # a slip in a recipe is told before anything is collected
    folder = out or Path("runs/credit") / Path(source.removeprefix(_WORLD)).name
    check_folder(folder, "--out")
    if source.startswith(_WORLD):
        truths = world_truths(
            source.removeprefix(_WORLD), folder, groups=groups, group_size=group_size, seeds=seeds
        )
    else:
        truths = actor_truths(
            source,
            overrides or (),
            folder,
            groups=groups,
            group_size=group_size,
            rerolls=rerolls,
            seeds=seeds,
        )
    if features is not None:
        truths = reread(truths, folder, features, overrides or ())
    found = judge(truths, recipe or (), smaller or ())
    write_json(folder / "credit.json", found)
    draw_scores({source: found}, folder / "credit.png")
    if as_json:
        print(json.dumps(found))
        return
    from rich.console import Console

    Console().print(score_table(found))
    Console().print(hypothesis_table(found["hypothesis"]))
    Console().print(f"scores {folder / 'credit.json'}\npicture {folder / 'credit.png'}", highlight=False)


# long: a parameter an option, with the words that --help shows
def analyze(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="trajectory files, or folders of them")
    ],
    out: Annotated[
        Path | None, typer.Option(help="where the page goes; default credit.html; `-` for none")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print what the page shows; no page unless --out")
    ] = False,
    format: Annotated[str | None, typer.Option(help="force a reader (default: by content)")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="PART=COLUMN", help="where a part stands: `reward=score`, `reward=info.score`"
        ),
    ] = None,
    rewards: Annotated[
        Path | None, typer.Option(help="rewards kept elsewhere: {id: reward}, rows, a report")
    ] = None,
    row_reward: Annotated[
        str, typer.Option(help="a reward on every row of a trajectory: auto, last (counts once) or each")
    ] = "auto",
    recipe: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.py:NAME", help="a recipe of your own, beside the shipped ones"),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="local Hugging Face folder: hidden states as features")
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(help="its layer: index, -1 from the end, or fraction of the depth (default 0.75)"),
    ] = None,
    eps: Annotated[float | None, typer.Option(help="cosine radius of a cluster (default 0.1)")] = None,
    gamma: Annotated[float, typer.Option(help="discount of the return-to-go")] = 0.95,
    mode: Annotated[
        str | None,
        typer.Option(help="mean_std_norm or mean_norm for both terms; default: each recipe its own"),
    ] = None,
    action_key: Annotated[str, typer.Option(help="action_tag or first_word")] = "action_tag",
    merge: Annotated[
        bool | None, typer.Option("--merge/--apart", help="join equal task ids of several files")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="stop at the first place that cannot be read")
    ] = False,
    page_steps: Annotated[
        int, typer.Option(help="steps in the page; larger inputs are sampled by group")
    ] = 30_000,
    page_mb: Annotated[
        float, typer.Option(help="texts in the page are cut until it is about this small")
    ] = 3.0,
    export: Annotated[
        Path | None, typer.Option(help="every step with every advantage, cluster, Q, V: .parquet or .csv")
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option(help="exit with 1 on a finding this grave: warning or error")
    ] = None,
    detail: Annotated[bool, typer.Option("--detail", help="explain every finding")] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="print the first two trajectories as understood, and what was dropped"
        ),
    ] = False,
) -> None:
    """Show what the rollouts you already have say about credit: findings, numbers and one HTML page.

    Needs no GPU.

    Reads files and run folders of verl, TRL, verifiers and prime-rl, NeMo Gym, ART, Inspect, Harbor (ATIF),
    terminal-bench, SWE-agent, OpenHands, tau-bench, Claude Code, Langfuse and OpenInference, OpenAI messages,
    this project's runs and flat tables (JSONL, CSV, parquet); gzip and zstd too. Examples: `bipace analyze
    results.jsonl` · `bipace analyze 40.jsonl --fail-on warning` · `bipace analyze rows.parquet --map
    task=prompt_id --map reward=score`
    """
    require("bipace analyze", "analyze")
    if model is not None:
        require("bipace analyze --model", "train")

    from bipace.analyze.analysis import Options
    from bipace.analyze.command import parse_columns, run, run_explain

    options = Options(
        gamma=gamma, mode=mode, eps=Options.eps if eps is None else eps, action_key=action_key,
        model=None if model is None else str(model), layer=Options.layer if layer is None else _layer(layer),
        format=format, columns=parse_columns(columns or ()), merge=merge, strict=strict,
        page_steps=page_steps,
        page_mb=page_mb, rewards=rewards, row_reward=row_reward, recipes=tuple(recipe or ()),
    )  # fmt: skip
    if explain:
        raise typer.Exit(run_explain(files, options))
    page = out or (None if as_json else Path("credit.html"))
    page = None if page == Path("-") else page
    if page is not None:
        check_file(page, "--out", starts_with("<!doctype html>", "<!DOCTYPE html>"), inputs=files)
    if export is not None:
        check_file(export, "--export", starts_with("PAR1", '"file","task","group"'), inputs=files)
    raise typer.Exit(
        run(files, options, page=page, as_json=as_json, fail_on=fail_on, detail=detail, export=export)
    )


def _layer(text: str) -> int | float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise ValueError(f"--layer {text}: expected a whole number, or a fraction between 0 and 1") from None
