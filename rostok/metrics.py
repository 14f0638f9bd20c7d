"""metrics.jsonl: one JSON record a line; and loss.png, drawn from it."""

import json
from pathlib import Path
from typing import Any

from rostok.errors import UserError


class MetricsLog:
    """Appends records to metrics.jsonl. `resume_at` drops the records after that step: they will be made again."""

    def __init__(self, path: Path, resume_at: int = 0) -> None:
        self.path = path
        kept = [record for record in read_metrics(path) if record["step"] <= resume_at] if resume_at else []
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        temporary.replace(path)

    def write(self, **record: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a half-written last line (a kill in the middle of it) is left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise UserError(f"{path}, line {number} is not JSON; delete the line and try again") from None
    return records


def plot_losses(runs: dict[str, Path], out: Path) -> None:
    """Draw training (thin) and held-out (thick) loss against tokens, one colour a run, into a PNG.

    `runs` maps a name to its metrics.jsonl.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for index, (name, path) in enumerate(runs.items()):
        records, colour = read_metrics(path), f"C{index}"
        train = [(r["tokens"], r["loss"]) for r in records if "loss" in r]
        valid = [(r["tokens"], r["valid_loss"]) for r in records if "valid_loss" in r]
        axes.plot(*zip(*train, strict=True), color=colour, alpha=0.35, lw=1) if train else None
        if valid:
            axes.plot(
                *zip(*valid, strict=True), color=colour, lw=2, marker="o", ms=3, label=f"{name}, held out"
            )
            axes.annotate(
                f"{valid[-1][1]:.2f}", valid[-1], xytext=(5, 0), textcoords="offset points", color=colour
            )
    axes.set(
        xlabel="training tokens seen", ylabel="loss, nats a token", title="Thin: training. Thick: held out"
    )
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    temporary = out.with_name(f".{out.name}.tmp")
    figure.savefig(temporary, format="png", metadata={"Software": None})
    temporary.replace(out)
