"""The words that attend.py prints and draws: one file a language, rostok/attention/words/LANG.yaml.

    say("en", "map", "loss", name="rostok", n=12, ...)      # a text with its braces filled
    section("ru", "heads")["induction"]                     # all words of one command
    in_all("experiments", "cost", "title")                  # {"en": ..., "ru": ...}

A new language is a new file with the keys of en.yaml; `missing(lang)` lists what it lacks. Left out: the words of the
page (page/strings/LANG.json), and error messages, which are English.
"""

import argparse
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Text = dict[str, str]  # {"en": ..., "ru": ...}

FOLDER = Path(__file__).parent / "words"
LANGUAGES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast


@cache
def words(lang: str) -> dict[str, Any]:
    """All words of one language: section -> key -> text; the titles of examples lie one level deeper."""
    return yaml.load((FOLDER / f"{lang}.yaml").read_text("utf-8"), LOADER)


def section(lang: str, name: str) -> dict[str, Any]:
    """The words of one section and those that all share."""
    return {**words(lang)["common"], **words(lang)[name]}


def say(lang: str, part: str, key: str, /, *values: Any, **named: Any) -> str:
    """One text of a section, filled in."""
    return section(lang, part)[key].format(*values, **named)


def in_all(*keys: str) -> Any:
    """The text at a path of keys in every language: {"en": ..., "ru": ...}."""
    return {lang: _at(words(lang), keys) for lang in LANGUAGES}


def has(*keys: str) -> bool:
    """Whether the English file has a text at this path."""
    try:
        return _at(words("en"), keys) is not None
    except KeyError:
        return False


def _at(tree: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        tree = tree[key]
    return tree


def missing(lang: str) -> list[str]:
    """The paths of en.yaml that a language lacks, and those that it has and en.yaml has not."""
    return sorted(set(_paths(words("en"))) ^ set(_paths(words(lang))))


def _paths(tree: Any, at: str = "") -> Iterator[str]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _paths(value, f"{at}/{key}")
    elif isinstance(tree, list):
        yield f"{at} ({len(tree)} words)"
    else:
        yield at


def add_language_argument(parser: argparse.ArgumentParser, what: str = "printed") -> None:
    """The word --lang."""
    parser.add_argument(
        "--lang", choices=LANGUAGES, default="en", help=f"the language of what is {what} (en)"
    )
