"""A grid of runs: `train.py NAME --grid seed=0,1,2 optim.lr=1e-3,3e-3` trains one run for each cell.

A cell is an ordinary run, trained by an ordinary train.py in a process of its own: checkpoints/NAME-seed0-lr1e-3 and so
on, one after the other. What is finished is skipped, what was stopped goes on, so the same command may be killed and
typed again. A cell that fails is noted and the next one begins. Left out: several cells at once, clever search.
"""

import itertools
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from rostok.errors import UserError, verb
from rostok.measuring.listing import cell, summary
from rostok.measuring.recipes import flat
from rostok.measuring.tables import plain_table
from rostok.training.signals import StopWish

MOST_CELLS = 1000


@dataclass(frozen=True)
class Cell:
    """One run of a grid: what is varied, as words, and all of its settings."""

    words: list[str]
    config: Any


def cells(axes: Sequence[str], load: Callable[[list[str], str], Any]) -> list[Cell]:
    """All combinations, the last axis running fastest. load(words, ending) gives the settings of a cell, whose name
    ends so. Raises UserError for an axis that is none, and whatever `load` raises, before anything is trained."""
    values = parse_axes(axes)
    short = [key.rsplit(".", 1)[-1] for key in values]
    labels = [last if short.count(last) == 1 else key for key, last in zip(values, short, strict=True)]
    found: dict[str, Cell] = {}
    for chosen in itertools.product(*values.values()):
        words = [f"{key}={value}" for key, value in zip(values, chosen, strict=True)]
        parts = zip(labels, chosen, strict=True)
        ending = "".join("-" + re.sub(r"[^\w.+-]", "_", label + value) for label, value in parts)
        one = Cell(words, load(words, ending))
        if one.config.name in found:
            raise UserError(
                f"two cells of the grid would have the name {one.config.name}; train one of them by hand"
            )
        found[one.config.name] = one
    return list(found.values())


def parse_axes(axes: Sequence[str]) -> dict[str, list[str]]:
    """Raises UserError for a word that is no axis, or for too many cells.

    >>> parse_axes(["seed=0,1,2", "optim.lr=1e-3"])
    {'seed': ['0', '1', '2'], 'optim.lr': ['1e-3']}
    """
    values: dict[str, list[str]] = {}
    count = 1
    for axis in axes:
        key, _, text = axis.partition("=")
        given = text.split(",")
        if not key or not all(given) or len(set(given)) < len(given):
            raise UserError(f"--grid takes settings with their values, such as seed=0,1,2. Got '{axis}'")
        if key in values:
            raise UserError(f"--grid has '{key}' twice; give all of its values together, as {key}=a,b,c")
        if key in ("name", "out"):
            raise UserError(f"--grid cannot vary '{key}': each cell gets a name of its own; leave it out")
        values[key], count = given, count * len(given)
    if count > MOST_CELLS:
        raise UserError(f"the grid has {count:,} cells, more than {MOST_CELLS:,}; give fewer values")
    return values


def run_grid(grid: Sequence[Cell], command: Sequence[str], stop: StopWish) -> int:
    """Train all cells and print their table; `command` and a cell's words train it. Gives the exit code."""
    failed: dict[str, int] = {}
    for number, one in enumerate(grid, 1):
        words = [*one.words, f"name={one.config.name}"]
        print(f"\ncell {number} of {len(grid)}  {' '.join(words)}", flush=True)
        if finished(one.config):
            print(f"finished already: {one.config.folder}", flush=True)
            continue
        code = follow(subprocess.Popen([*command, *words], start_new_session=os.name == "posix"), stop)
        if stop.signal:
            print(f"\nstopped by {stop.name}; the same command goes on from here")
            return stop.exit_code
        if code:
            failed[one.config.name] = code
    print(f"\n{table(grid, failed)}")
    best = [str(one.config.folder) for one in grid if one.config.name not in failed]
    if best:
        print(f"\nnext     {verb('compare')} {' '.join(best[:20])} --at 0")
    return 1 if failed else 0


def finished(config: Any) -> bool:
    """Whether the run of these settings is there and has ended. Its vocabulary was taken from the data."""
    try:
        there = flat(yaml.safe_load((config.folder / "config.yaml").read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, AttributeError):
        return False
    wanted = {key: value for key, value in flat(asdict(config)).items() if key not in FROM_DATA}
    same = all(key in there and there[key] == value for key, value in wanted.items())
    return same and summary(config.folder)["state"] in ("finished", "stopped early")


FROM_DATA = ("model.vocab_size", "model.start_id")


def follow(child: "subprocess.Popen[bytes]", stop: StopWish) -> int:
    """Wait for a cell and pass a signal on to it: it has a session of its own and hears none from the terminal."""
    told = False
    while True:
        try:
            return child.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            if stop.signal and not told and os.name == "posix":
                child.send_signal(stop.signal)
            told = bool(stop.signal)
        except KeyboardInterrupt:  # the second Ctrl-C: do not wait for the end of the step
            child.terminate()
            child.wait()
            raise


def table(grid: Sequence[Cell], failed: dict[str, int]) -> str:
    """One line a cell: what was varied, how far it came, its lowest validation loss."""
    keys = [word.partition("=")[0] for word in grid[0].words]
    lines = []
    for one in grid:
        row = summary(one.config.folder)
        code = failed.get(one.config.name)
        state = f"failed, exit code {code}" if code else row["state"]
        told = [cell(row["tokens"]), cell(row["val loss"], ".4f")]
        lines.append([one.config.name, *(word.partition("=")[2] for word in one.words), *told, state])
    return plain_table(["name", *keys, "tokens", "val loss", "state"], lines, 80)
