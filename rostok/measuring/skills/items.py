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

OWN, BLIMP = ("prefix", "good", "bad"), ("sentence_good", "sentence_bad")


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
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # U+2028 and the like end no line here
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}; wanted a JSONL file of items") from None
    items = [read_item(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not items:
        raise UserError(f'{path} holds no items; wanted lines of {{"prefix": ..., "good": ..., "bad": ...}}')
    return items


def read_item(line: str, path: Path, number: int) -> Item:
    try:
        entry = json.loads(line)
        if not isinstance(entry, dict):
            raise ValueError("it is not an object")
        blimp = "sentence_good" in entry
        prefix, good, bad = ("", *map(entry.__getitem__, BLIMP)) if blimp else map(entry.__getitem__, OWN)
        if not all(isinstance(text, str) for text in (prefix, good, bad)):
            raise ValueError("a text is not a string")
        if not good or not bad or good == bad:
            raise ValueError("a continuation is empty" if good != bad else "both continuations are the same")
        "".join((prefix, good, bad)).encode()
    except KeyError as error:
        raise refuse(path, number, f"there is no {error.args[0]}") from None
    except (ValueError, RecursionError) as error:
        raise refuse(path, number, str(error)) from None
    if blimp:  # whole sentences after ◆ and a blank, as lm-evaluation-harness has them
        return Item("", f" {good}", f" {bad}", word(entry.get("UID")) or path.stem)
    return Item(prefix, good, bad, word(entry.get("skill")) or path.stem, word(entry.get("grade")))


def word(value: object) -> str:
    """A skill's or a grade's name in one line of ordinary characters."""
    text = "" if value is None else str(value)
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def refuse(path: Path, number: int, why: str) -> UserError:
    wanted = '{"prefix": ..., "good": ..., "bad": ...} or {"sentence_good": ..., "sentence_bad": ...}'
    return UserError(f"{path}, line {number}: {why}; wanted {wanted}")
