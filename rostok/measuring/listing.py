"""`rostok ls` and `rostok diff`: the runs that are here, and the settings in which some of them differ.

    rostok ls                          the runs below checkpoints/ and the shipped ones
    rostok ls sweeps --json            the runs below another folder, one JSON object a line
    rostok diff small rostok-mini      their settings, where they differ; two runs or more

Losses of runs are comparable where data and tokenizer are the same: rostok compare measures on the same targets.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rostok import runs
from rostok.errors import Parser, UserError, visible
from rostok.front import known_runs
from rostok.measuring.recipes import differing, flat
from rostok.measuring.tables import plain_table

COLUMNS = ("name", "model", "parameters", "tokens", "val loss", "state")
DIGITS = {"val loss": ".4f"}


def ls(words: Sequence[str]) -> int:
    """Print the runs. Raises UserError for a folder without any."""
    parser = parser_of("ls")
    parser.add_argument(
        "folder", nargs="?", type=Path, help="where the run folders lie (default: checkpoints)"
    )
    options = parser.parse_args(words)
    folders = known_runs()
    if options.folder:
        folders = [path.parent for path in sorted(options.folder.glob("*/config.yaml"))]
        if not folders:
            raise UserError(
                f"there is no run below {options.folder}; wanted folders such as checkpoints/NAME"
            )
    show([summary(folder) for folder in folders], list(COLUMNS), options.json, 80)
    return 0


def diff(words: Sequence[str]) -> int:
    """Print the settings in which runs differ. Raises UserError for a run that is not there."""
    parser = parser_of("diff")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder, or its short name")
    options = parser.parse_args(words)
    if len(options.runs) < 2:
        raise UserError(
            f"rostok diff takes two runs or more. Got {options.runs[0]} alone; rostok ls lists the runs"
        )
    opened = [runs.open_run(path) for path in options.runs]
    names = [run.folder.resolve().name for run in opened]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in opened]
    settings = [flat(run.config) for run in opened]
    rows = [
        {"setting": key} | {name: each.get(key) for name, each in zip(names, settings, strict=True)}
        for key in differing([run.config for run in opened])
    ]
    if not rows and not options.json:
        print("no setting differs")
    else:
        show(rows, ["setting", *names], options.json)
    return 0


def parser_of(verb: str) -> Parser:
    parser = Parser(prog=f"rostok {verb}", description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


def summary(folder: Path) -> dict[str, Any]:
    """What `rostok ls` says of a run folder: the columns, and where it lies."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | {"name": folder.resolve().name, "folder": str(folder)}
    try:
        run = runs.open_run(runs.find_step(folder, say=lambda _: None))
        last = runs.read_state(runs.complete_steps(folder)[-1])
        losses = [r["valid_loss"] for r in runs.read_metrics(folder / "metrics.jsonl") if "valid_loss" in r]
        row |= {"model": run.state["model"].get("kind"), "parameters": count_parameters(run.step_folder)}
        row |= {"tokens": last.get("tokens"), "val loss": min(losses, default=None)}
        whole = (runs.complete_steps(folder)[-1] / "optimizer.safetensors").is_file()
        row["state"] = progress(folder, run.config, last) if whole else "weights only"
    except (UserError, IndexError):
        row["state"] = "no checkpoint"
    return row


def count_parameters(step_folder: Path) -> int | None:
    """The numbers in model.safetensors, told from its header alone; None where that cannot be read."""
    try:
        with (step_folder / "model.safetensors").open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, 10_000_000)))
        return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError):
        return None


def progress(folder: Path, config: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """How far a run has come, by its newest checkpoint: `finished`, `stopped early` or `200/800 steps`.

    Empty for a run that no training made. Whether a process trains it now is not told.
    """
    try:
        steps = max(
            1, round(config["tokens"] / (config["batch"] * config["accumulate"] * config["model"]["context"]))
        )
        if config["schedule"]["max_minutes"] and (folder / "plan.json").is_file():
            steps = min(steps, list(json.loads((folder / "plan.json").read_text("utf-8")).values())[-1])
        if 0 < config["early_stop"] <= state["stale"]:
            return "stopped early"
        return "finished" if state["step"] >= steps else f"{state['step']:,}/{steps:,} steps"
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, OSError):
        return ""


def show(
    rows: Sequence[Mapping[str, Any]], columns: list[str], as_json: bool, width: int | None = None
) -> None:
    """Rows as a table, or as JSON lines."""
    if as_json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
    else:
        cells = [[visible(cell(row[name], DIGITS.get(name, ".5g"))) for name in columns] for row in rows]
        print(plain_table([visible(name) for name in columns], cells, width))


def cell(value: Any, digits: str = ".5g") -> str:
    """
    >>> cell(1234567), cell(2.02084, ".4f"), cell(1e-6), cell(None), cell(True), cell("a")
    ('1,234,567', '2.0208', '1e-06', '', 'true', 'a')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:{digits}}" if isinstance(value, float) else str(value)
