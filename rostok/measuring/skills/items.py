"""Pairs of continuations: a prefix, a good continuation and a bad one. Made here, or read from a file.

    items = read_items(Path("mine.jsonl"))       # one {"prefix": ..., "good": ..., "bad": ...} a line
    items = read_items(Path("blimp.jsonl"))      # BLiMP: {"sentence_good": ..., "sentence_bad": ..., ...}
    write_items(items), hash_of(items)           # a set as JSONL; the SHA-256 that names it

Every continuation is a string that is put after the prefix as it is: it begins with its own space. Left out: more than
two choices.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rostok.errors import UserError

BLIMP = ("sentence_good", "sentence_bad")


@dataclass(frozen=True)
class Item:
    """One pair; skill and grade say what it asks and how hard it is."""

    prefix: str
    good: str
    bad: str
    skill: str = "items"
    grade: str = ""


def write_items(items: Sequence[Item]) -> str:
    return "".join(json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items)


def hash_of(items: Sequence[Item]) -> str:
    """SHA-256 of the set as JSONL."""
    return hashlib.sha256(write_items(items).encode()).hexdigest()


def read_items(path: Path) -> list[Item]:
    """The items of a JSONL file, ours or BLiMP's. Raises UserError with the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}; wanted a JSONL file of items") from None
    items = [read_item(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not items:
        raise UserError(f'{path} holds no items; wanted lines of {{"prefix": ..., "good": ..., "bad": ...}}')
    return items


def read_item(line: str, path: Path, number: int) -> Item:
    try:
        entry = json.loads(line)
        if (
            "sentence_good" in entry
        ):  # BLiMP: whole sentences after ◆ and a blank, as lm-evaluation-harness has them
            texts, skill, grade = ("", *(f" {entry[name]}" for name in BLIMP)), entry.get("UID"), ""
        else:
            texts, skill = (entry["prefix"], entry["good"], entry["bad"]), entry.get("skill")
            grade = str(entry.get("grade", ""))
        found = Item(texts[0], texts[1], texts[2], str(skill or path.stem), grade)
        if not all(isinstance(text, str) for text in (found.prefix, found.good, found.bad)):
            raise TypeError("a text is not a string")
        if not found.good or not found.bad:
            raise ValueError("a continuation is empty")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        wanted = '{"prefix": ..., "good": ..., "bad": ...} or {"sentence_good": ..., "sentence_bad": ...}'
        raise UserError(f"{path}, line {number}: {type(error).__name__} {error}; wanted {wanted}") from None
    return found
