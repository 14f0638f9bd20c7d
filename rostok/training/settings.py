"""All settings with what they mean: `train.py --settings [WORD]`, docs/settings.md and configs/schema.json.

    list_settings(TrainConfig)      # one Setting each, in the order of the dataclasses
    as_text(TrainConfig, "lr")      # for a terminal, 80 columns: those that speak of a word
    schema(TrainConfig)             # for editors of YAML files: a JSON schema

A setting is told where it is defined: the words behind its type, `lr: Annotated[float, Field(gt=0), "peak rate"]`, and
the docstring of its class. Nothing is said here a second time.
"""

import dataclasses
import json
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from rostok.errors import UserError
from rostok.training.habits import answer

WRITTEN = r"^[-+]?[0-9][0-9_.]*([eE][-+]?[0-9]+|[kMB])?$"  # 6_000_000, 6e6 and 6M, which YAML takes for words


@dataclass(frozen=True)
class Setting:
    """One setting: `optim.lr`, `0.002`, what it means, what is allowed; the group that it is shown in."""

    key: str
    default: str
    text: str
    allowed: str
    group: str


def list_settings(cls: Any, above: str = "", group: str = "") -> Iterator[Setting]:
    """The settings of a dataclass and of those below it; own ones first. A union shows each of its kinds."""
    hints = typing.get_type_hints(cls, include_extras=True)
    below = []
    for field in dataclasses.fields(cls):
        hint, text, limits = opened(hints[field.name])
        classes = [option for option in typing.get_args(hint) or (hint,) if dataclasses.is_dataclass(option)]
        if classes:
            below.append((field.name, classes))
            continue
        key = f"{above}.{field.name}".lstrip(".")
        yield Setting(key, shown(field.default), text, allowed(hint, limits), group or title(cls))
    for name, classes in below:
        for one in classes:
            kind = f", kind {one.kind}" if len(classes) > 1 else ""
            yield from list_settings(one, f"{above}.{name}".lstrip("."), f"{name}{kind}: {title(one)}")


def title(cls: Any) -> str:
    return next(iter((cls.__doc__ or "").splitlines()), "")


def opened(hint: Any) -> tuple[Any, str, dict[str, Any]]:
    """The type within Annotated[...], the words behind it and its limits (ge, gt, le, lt)."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint, "", {}
    inner, *notes = typing.get_args(hint)
    text = next((note for note in notes if isinstance(note, str)), "")
    marks = [mark for note in notes for mark in getattr(note, "metadata", [])]
    limits = {
        name: getattr(mark, name)
        for mark in marks
        for name in ("ge", "gt", "le", "lt")
        if hasattr(mark, name)
    }
    return inner, text, limits


def allowed(hint: Any, limits: dict[str, Any]) -> str:
    """
    >>> allowed(float, {"gt": 0, "le": 1}), allowed(int | None, {"ge": 1}), allowed(typing.Literal["a", "b"], {})
    ('above 0, at most 1', '1 or more, or null', 'a, b')
    """
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(map(str, typing.get_args(hint)))
    if hint is bool:
        return "true, false"
    words = (
        [f"above {limits['gt']}"] if "gt" in limits else [f"{limits['ge']} or more"] if "ge" in limits else []
    )
    words += [f"below {limits['lt']}"] if "lt" in limits else []
    words += [f"at most {limits['le']:_}"] if limits.get("le", 1e18) < 1e18 else []
    return ", ".join(words) + (", or null" if type(None) in typing.get_args(hint) else "").lstrip(
        ", " if not words else ""
    )


def shown(value: Any) -> str:
    """A value as it is typed.

    >>> shown(True), shown(None), shown(""), shown(6_000_000), shown(0.0), shown(1e-08)
    ('true', 'null', "''", '6_000_000', '0', '1e-08')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return (
        f"{value:_}"
        if isinstance(value, int)
        else f"{value:g}"
        if isinstance(value, float)
        else value or "''"
    )


def as_text(cls: Any, word: str = "") -> str:
    """All settings, or those whose name or words hold `word`; empty where there is none."""
    found = [
        one for one in list_settings(cls) if word.lower() in f"{one.key} {one.text} {one.allowed}".lower()
    ]
    lines: list[str] = []
    for before, one in zip([None, *found], found, strict=False):
        if before is None or before.group != one.group:
            lines += ["", *textwrap.wrap(one.group, 80)]
        words = f"{one.text} [{one.allowed}]" if one.allowed else one.text
        head = f"  {one.key:<21} {one.default:<13} "
        lines += textwrap.wrap(
            words, 80, initial_indent=head, subsequent_indent=" " * 38, break_long_words=False
        )
    return "\n".join(lines[1:])


def tell_settings(cls: Any, word: str | None) -> int:
    """Print the settings that speak of `word`, all for "", the JSON schema for None. Raises UserError for none."""
    if word is None:
        print(json.dumps(schema(cls), indent=1))
        return 0
    found = as_text(cls, word)
    if not found:
        raise UserError(
            f"no setting speaks of '{word}'{instead(cls, word) or '; without a word: all of them'}"
        )
    print(found)
    return 0


def instead(cls: Any, name: str) -> str:
    """What to type for a setting that is not there: by its name elsewhere, or where it is here; else nothing.

    The last part of a dotted name is enough.
    """
    last = name.rsplit(".", 1)[-1]
    near = list(dict.fromkeys(one.key for one in list_settings(cls) if one.key.rsplit(".", 1)[-1] == last))
    told = answer(last)
    return f": {told}" if told else f"; did you mean {' or '.join(near)}?" if near else ""


def schema(cls: Any) -> dict[str, Any]:
    """A JSON schema of the YAML file: names, meanings, defaults, values. 6_000_000, a word in YAML 1.2, is a number."""
    whole = TypeAdapter(cls).json_schema()
    classes = {cls.__name__: cls} | {one.__name__: one for one in classes_below(cls)}
    for name, part in [*whole["$defs"].items(), (cls.__name__, whole)]:
        part["additionalProperties"] = False
        hints = typing.get_type_hints(classes[name], include_extras=True)
        for key, entry in part["properties"].items():
            if text := opened(hints[key])[1]:
                entry["description"] = text
            entry.pop("title", None)
            if "discriminator" in entry:  # a file may leave `kind` out
                del entry["discriminator"]
                entry["anyOf"] = entry.pop("oneOf")
            for option in [entry, *entry.get("anyOf", [])]:
                if option.get("type") in ("integer", "number"):
                    option |= {"type": [option["type"], "string"], "pattern": WRITTEN}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **whole}


def classes_below(cls: Any) -> Iterator[Any]:
    for hint in typing.get_type_hints(cls).values():
        for option in typing.get_args(hint) or (hint,):
            if dataclasses.is_dataclass(option):
                yield option
                yield from classes_below(option)
