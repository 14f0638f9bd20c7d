"""The run passport: what a run was made with, in passport.json of its folder. Each start of the run adds an entry."""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from rostok.files import write_file
from rostok.text.shards import Data
from rostok.text.tokenizer import Tokenizer

PACKAGES = ("torch", "numpy", "safetensors", "tokenizers", "tiktoken", "pyyaml", "pydantic")


@cache  # every checkpoint asks
def versions() -> dict[str, str]:
    """Python's version and those of the packages that a result may depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def git_commit(folder: Path) -> str | None:
    """The commit of the code, with `+` behind it when files were changed; None outside a checkout."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def provenance(arithmetic: Mapping[str, Any], data: Data, tokenizer: Tokenizer) -> dict[str, Any]:
    """The arithmetic and the data of a run, for state.json and the passport."""
    return {
        "runtime": dict(arithmetic),
        "data_sha256": {split: data.split(split).sha256 for split in ("train", "valid")},
        "tokenizer_sha256": tokenizer.sha256,
    }


def changed(now: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """The parts of the arithmetic that differ between two states of a run, so that last bits may differ."""
    new, old = now["runtime"], saved["runtime"]
    return [f"{key} {old[key]} -> {new[key]}" for key in new if key in old and new[key] != old[key]]


def stamp(run: Path, step: int, provenance: dict[str, Any]) -> None:
    """Add this start to RUN/passport.json: when, at which step, with which command, versions and `provenance`."""
    path = run / "passport.json"
    entry = {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "step": step,
        "command": sys.argv,
        "platform": platform.platform(),
        "versions": versions(),
        "commit": git_commit(Path(__file__).parent),
        **provenance,
    }
    starts = [*read_starts(run), entry]
    write_file(path, json.dumps({"starts": starts}, indent=1, ensure_ascii=False) + "\n", durable=True)


def read_starts(run: Path) -> list[dict[str, Any]]:
    """The entries so far, oldest first; none where there is no readable passport."""
    try:
        return list(json.loads((run / "passport.json").read_text(encoding="utf-8"))["starts"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
