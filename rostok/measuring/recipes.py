"""Which runs are one recipe: several seeds of the same settings, one row of a table.

    given = named_runs(["a=RUN1,RUN2", "RUN3"])       # [("a", "RUN1"), ("a", "RUN2"), (None, "RUN3")]
    rows = rows_of(given, runs)                       # [("a", [0, 1]), ("RUN3", [2])]: indices of opened runs

The user names a row, or runs whose settings differ in `seed` alone are put together.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rostok.errors import UserError
from rostok.runs import Run, remark

LONGEST = 40  # signs of a row's name
COUNTING = re.compile("uniform|unigram|bigram|trigram|[0-9]+-gram")  # rows that compare.py adds
SAME_RECIPE = ("seed", "out", "data.path")  # settings that may differ among the seeds of a recipe


def named_runs(words: Sequence[str]) -> list[tuple[str | None, str]]:
    """The run folders that the words mean, each with the row that the user put it in (None: by itself).

    Raises UserError for a name that cannot be printed in a table, and a run that is named twice in a row.
    """
    found: list[tuple[str | None, str]] = []
    for word in words:
        name, equals, paths = word.partition("=")
        if equals and not os.path.exists(word):
            if not name or not all(paths.split(",")):
                raise UserError(f"wanted NAME=RUN,RUN,... for a row of several seeds. Got {word!a}")
            if len(name) > LONGEST or not name.isprintable():
                raise UserError(f"a row's name is one line of {LONGEST} signs at most. Got {name[:60]!a}")
            found += [(name, os.path.expanduser(path)) for path in paths.split(",")]
        else:
            found.append((None, word))
    for row, path in found:
        if row is not None and found.count((row, path)) > 1:
            raise UserError(f"{path} is named twice; a run is one seed and counts once")
    return found


def row_names(runs: Sequence[Run]) -> list[str]:
    """Folder names; with the step where one comes twice."""
    names = [run.folder.resolve().name for run in runs]
    return [
        name if names.count(name) == 1 else f"{run.folder}/{run.step_folder.name}"
        for name, run in zip(names, runs, strict=True)
    ]


def rows_of(given: Sequence[tuple[str | None, str]], runs: Sequence[Run]) -> list[tuple[str, list[int]]]:
    """The rows of the table, in the order of their first runs: (name, indices of its runs).

    Raises UserError for a name that another row has, and for a row whose runs are different models or one and the same.
    """
    free = [i for i, (row, _) in enumerate(given) if row is None]
    rows = [
        (name, [free[k] for k in group])
        for name, group in grouped(row_names([runs[i] for i in free]), [runs[i].config for i in free])
    ]
    for row in dict.fromkeys(row for row, _ in given if row is not None):
        group = [i for i, (other, _) in enumerate(given) if other == row]
        refuse_mixture(row, [runs[i] for i in group])
        rows.append((row, group))
    names, own = [name for name, _ in rows], {row for row, _ in given}
    for name in names:
        if COUNTING.fullmatch(name) or (name in own and names.count(name) > 1):
            raise UserError(f"two rows would be named {name}; name one otherwise: NAME=RUN,RUN,...")
    return sorted(rows, key=lambda row: row[1][0])


def refuse_mixture(row: str, runs: Sequence[Run]) -> None:
    """A row is one recipe with several seeds. Raises UserError for different models or a run twice; remarks others."""
    if len({run.step_folder.resolve() for run in runs}) < len(runs):
        raise UserError(f"the row {row} names a run twice; a run is one seed and counts once")
    if any(run.state["model"] != runs[0].state["model"] for run in runs):
        raise UserError(
            f"the runs of the row {row} are different models; a row is one recipe with several seeds"
        )
    others = [name for name in differing([run.config for run in runs]) if name not in SAME_RECIPE]
    if others:
        remark(f"note: the runs of {row} differ in {', '.join(others)} too, not in their seed alone")


def settings_of(rows: Sequence[tuple[str, list[int]]], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each row the settings in which the runs differ; several values of one row are joined."""
    names = [name for name in differing([run.config for run in runs]) if name != "data.path"]
    plain = [flat(run.config) for run in runs]

    def values(name: str, group: list[int]) -> str:
        return ",".join(dict.fromkeys(str(plain[i].get(name, "")) for i in group))

    return [{name: values(name, group) for name in names} for _, group in rows]


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings, by their dotted names, in which some configurations differ; `name` is not counted.

    >>> differing([{"seed": 0, "optim": {"lr": 1}, "name": "a"}, {"seed": 0, "optim": {"lr": 2}, "name": "b"}])
    ['optim.lr']
    """
    plain = [flat(config) for config in configs]
    names = sorted({name for each in plain for name in each} - {"name"})
    return [name for name in names if any(each.get(name) != plain[0].get(name) for each in plain)]


def flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """{"optim": {"lr": 1}} -> {"optim.lr": 1}."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        result |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return result


def grouped(names: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    """Rows of a table: (name, indices of the runs in it). Runs whose settings differ in `seed` alone are one row.

    >>> grouped(["g-s0", "w", "g-s1"], [{"seed": 0}, {"seed": 0, "b": 1}, {"seed": 1}])
    [('g-s*', [0, 2]), ('w', [1])]
    """
    groups: list[list[int]] = []
    for i, config in enumerate(configs):
        home = next(
            (g for g in groups if all(differing([configs[j], config]) == ["seed"] for j in g)),
            None,
        )
        if home is None:
            groups.append([i])
        else:
            home.append(i)
    return [(common([names[i] for i in group]), group) for group in groups]


def common(names: Sequence[str]) -> str:
    """One name for several: what they begin with, and *."""
    if len(names) == 1:
        return names[0]
    length = next((i for i, signs in enumerate(zip(*names, strict=False)) if len(set(signs)) > 1), 0)
    return names[0][:length] + "*"
