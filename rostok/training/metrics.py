"""metrics.jsonl: one JSON record a line; and loss.png, drawn from it."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from rostok.errors import UserError
from rostok.files import replacing, write_file
from rostok.runs import read_metrics


class MetricsLog:
    """Appends records to metrics.jsonl, and to TensorBoard when asked. `resume_at` drops the records after that step:
    they will be made again. An inactive log writes nothing (a process that is not the first)."""

    def __init__(
        self, path: Path, resume_at: int = 0, tensorboard: bool = False, active: bool = True
    ) -> None:
        self.path, self.active, self.board, self.warned = path, active, None, False
        if active and tensorboard:
            self.board = open_board(path.parent / "tensorboard", resume_at)
        if active:
            old = read_metrics(path) if resume_at else []
            kept = [record for record in old if record["step"] <= resume_at]
            write_file(path, "".join(json.dumps(record) + "\n" for record in kept))

    def write(self, **record: Any) -> None:
        """Append one record. A full disk costs the record and one warning, not the run."""
        if not self.active:
            return
        whole = 0
        try:
            whole = self.path.stat().st_size
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, allow_nan=False) + "\n")
        except OSError as error:
            with contextlib.suppress(OSError):  # no half record for the next one to be glued to
                os.truncate(self.path, whole)
            if not self.warned:
                print(
                    f"warning: cannot write {self.path}: {error.strerror}; going on without", file=sys.stderr
                )
            self.warned = True
        if self.board:
            for key, value in record.items():
                if isinstance(value, int | float) and key != "step":
                    self.board.add_scalar(key, value, record["step"])

    def close(self) -> None:
        if self.board:
            self.board.close()


def open_board(folder: Path, resume_at: int) -> Any:
    """A TensorBoard writer; what it drew after `resume_at` is hidden. Raises UserError where TensorBoard is missing."""
    return board_writer()(folder, purge_step=resume_at + 1 if resume_at else None)


def board_writer() -> Any:
    """TensorBoard's class of writers. Raises UserError where TensorBoard is missing."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        raise UserError(
            "tensorboard=true needs TensorBoard; type pip install 'rostok[tensorboard]', or leave it out"
        ) from None
    return SummaryWriter


def plot_losses(runs: dict[str, Path], out: Path) -> None:
    """draw_losses into a PNG file."""
    with replacing(out) as beside:
        draw_losses(runs).savefig(beside, format="png", metadata={"Software": None})


def draw_losses(runs: dict[str, Path]) -> Any:
    """A figure of training (thin) and held-out (thick) loss against tokens, one colour a run; horizontal lines for
    guessing and for the data's trigram, where the log has them.

    `runs` maps a name to its metrics.jsonl.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    most, levels = 0, {}
    for index, (name, path) in enumerate(runs.items()):
        records = read_metrics(path)
        colour = f"C{index}" if len(runs) <= 10 else colormaps["tab20"](index % 20)
        train, valid = curve(records, "loss"), curve(records, "valid_loss")
        alone = f"{name}, training" if len(runs) == 1 else None
        axes.plot(*train, color=colour, alpha=0.35, lw=1, label=alone)
        if valid[0]:
            axes.plot(*valid, color=colour, lw=2, marker="o", ms=3, label=f"{name}, held out")
            text = f"{valid[1][-1]:.2f}"
            axes.annotate(
                text, (valid[0][-1], valid[1][-1]), (5, 0), textcoords="offset points", color=colour
            )
        most = max([most, *train[0], *valid[0]])
        for kind, words in LEVELS.items():
            levels |= {record[kind]: f"{words}, {record[kind]:.2f}" for record in records if kind in record}
    for style, (level, words) in zip(("--", ":", "-.") * len(levels), levels.items(), strict=False):
        axes.axhline(level, color="grey", lw=1, ls=style, label=words)
    unit, divisor = ("M", 1e6) if most >= 200_000 else ("thousand", 1e3)
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / divisor:g}")
    axes.set(xlabel=f"training tokens, {unit}", ylabel="loss, nats per token")
    axes.set_xlim(0, 1.07 * most or 1)  # the last value stays inside
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize="small", ncols=1 if len(runs) <= 8 else 2)
    return figure


LEVELS = {"guessing": "guessing", "trigram": "trigram of the data"}


def curve(records: list[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Tokens and values of the records that have a value."""
    found = [(record["tokens"], record[key]) for record in records if {"tokens", key} <= record.keys()]
    return [tokens for tokens, _ in found], [value for _, value in found]
