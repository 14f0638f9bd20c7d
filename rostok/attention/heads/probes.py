"""What the probes of `attend.py name` (name.py) and `attend.py pronoun` (pronoun.py) share."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rostok import __version__
from rostok.attention.heads.scores import number, seed
from rostok.attention.languages import add_language_argument
from rostok.attention.reference import Array
from rostok.files import write_out
from rostok.measuring.intervals import mean_interval


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of both commands."""
    add = parser.add_argument
    add("--seed", type=seed, default=0, help="of random names, stories and heads (0)")
    add("--out", metavar="FILE", help="also write the JSON there")
    add("--force", action="store_true", help="overwrite an existing file")
    add("--json", action="store_true", help="print JSON instead of text")
    add_language_argument(parser)


def publish(
    found: dict[str, Any],
    as_text: Callable[[Mapping[str, Any], str], str],
    out: Path | None,
    args: argparse.Namespace,
) -> int:
    """Print as text or JSON, and write the JSON."""
    record = {**found, "version": 1, "created_with": __version__, "seed": args.seed}
    content = json.dumps(record, ensure_ascii=False, allow_nan=False)
    if out:
        write_out(out, content)
    print(content if args.json else as_text(record, args.lang))
    return 0


def pieces_at(text: str, begin: int, length: int, ends: Array) -> list[int]:
    """The positions of the tokens that spell the characters begin .. begin+length of a text (bytes end at `ends`)."""
    low, high = (len(text[:cut].encode()) for cut in (begin, begin + length))
    return [i for i in range(1, len(ends)) if ends[i] > low and ends[i - 1] < high]


def mean_and_interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean over names or stories with its 95 % interval (bootstrap over them)."""
    array = np.array(values)
    bounds = mean_interval(array, np.arange(len(array)))
    return {"mean": number(array.mean()), "interval": bounds, "n": len(array)}


def with_interval(cell: Mapping[str, Any]) -> str:
    bounds = cell["interval"]
    return f"{cell['mean']:.4f}" + (f" [{bounds[0]:.4f}, {bounds[1]:.4f}]" if bounds else "")
