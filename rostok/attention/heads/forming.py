"""`attend.py forming`: the heads as they form during training, against the loss.

    python train.py configs/rostok.yaml probe.every=100         # writes {"step": ..., "heads": {...}} to metrics.jsonl
    python attend.py forming checkpoints/rostok --out forming.png

A probe reads a few rows of repeated random tokens, always the same, with the NumPy reference: no random state
and no bit of the training is touched. The scores are those of scores.py. Leaves out labels and ablation (report.py).
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rostok.attention.languages import add_language_argument, section
from rostok.attention.pictures import picture, plain
from rostok.errors import UserError, verb
from rostok.files import check_out, write_out
from rostok.runs import read_metrics

KINDS = ("induction", "previous", "start")


# ---- attend.py forming -------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py forming`."""
    add = parser.add_argument
    add("run", metavar="RUN", help="a run folder that was trained with probe.every=N")
    add("--out", metavar="FILE", help="forming.png or .svg")
    add("--force", action="store_true", help="overwrite an existing file")
    add("--json", action="store_true", help="print JSON instead of text")
    add_language_argument(parser, "printed and drawn")


def run(args: argparse.Namespace) -> int:
    """`attend.py forming`: read metrics.jsonl, print the strongest head of each kind by step, draw all."""
    out = check_out(args.out, (".png", ".svg"), args.force)
    folder = Path(args.run)
    if not folder.is_dir():
        raise UserError(
            f"there is no run folder {folder}; train one ({verb('train')} quickstart probe.every=100)"
        )
    name, path = folder.resolve().name, folder / "metrics.jsonl"
    records = read_metrics(path)
    probed = [record for record in records if "heads" in record]
    if not probed:
        raise UserError(f"{folder} has no probes in metrics.jsonl; train with probe.every=100, say")
    check_records(probed, path)
    if out:
        write_out(out, picture(draw(records, name, args.lang), out.suffix.lower()[1:]))
    if args.json:
        rows = [{key: record[key] for key in ("step", "tokens", "heads")} for record in probed]
        print(json.dumps({"format": "rostok-forming", "version": 1, "run": name, "probes": rows}))
        return 0
    print(table(probed, args.lang))
    if out:
        print(out)
    return 0


def check_records(probed: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Raise UserError unless every probe has finite scores of all kinds, (L, H) each, all of one shape."""
    shapes = set()
    for record in probed:
        try:
            scores = np.array([record["heads"][kind] for kind in KINDS], dtype=np.float64)
            if scores.ndim != 3 or not np.isfinite([*scores.flat, float(record["tokens"])]).all():
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            raise UserError(
                f"{path}: the probe of step {record['step']} is damaged; delete its line"
            ) from None
        shapes.add(scores.shape)
    if len(shapes) > 1:
        raise UserError(f"{path}: its probes are of models of different sizes; delete those of the other run")


def table(probed: Sequence[Mapping[str, Any]], lang: str) -> str:
    """A line a probe: the strongest head of each kind and where it is."""
    words = section(lang, "forming")
    lines = [f"{words['step']:>7} " + " ".join(f"{words[kind]:>20}" for kind in KINDS)]
    for record in probed:
        cells = []
        for kind in KINDS:
            scores = np.array(record["heads"][kind])
            layer, head = np.unravel_index(int(scores.argmax()), scores.shape)
            cells.append(f"{scores.max():.3f} ({layer + 1}.{head + 1})")
        lines.append(f"{record['step']:>7} " + " ".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)


def draw(records: Sequence[Mapping[str, Any]], name: str, lang: str) -> Any:
    """Loss above; below it induction, previous and start scores, a line a head, its colour the layer."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    words = section(lang, "forming")
    figure = Figure(figsize=(8, 9), dpi=120, layout="constrained")
    top, *below = figure.subplots(4, 1, sharex=True)
    for key, style in (("loss", {"alpha": 0.4, "lw": 1}), ("valid_loss", {"lw": 2, "marker": "o", "ms": 3})):
        points = [(record["tokens"], record[key]) for record in records if key in record]
        if points:
            top.plot(*zip(*points, strict=True), color="#444444", **style)
    top.set(ylabel=words["loss"], title=plain(words["title"].format(name=name)))
    probed = [record for record in records if "heads" in record]
    tokens = [record["tokens"] for record in probed]
    for axes, kind in zip(below, KINDS, strict=True):
        scores = np.array([record["heads"][kind] for record in probed])  # (probes, L, H)
        n_layer = scores.shape[1]
        for layer in range(n_layer):
            colour = colormaps["viridis"](layer / max(1, n_layer))
            lines = axes.plot(tokens, scores[:, layer], color=colour, lw=1.2, marker=".", ms=3)
            lines[0].set_label(f"{words['layer']} {layer + 1}")
        axes.set(ylabel=words[kind], ylim=(-0.02, 1.02))
        axes.grid(alpha=0.25)
    below[0].legend(frameon=False, fontsize=7, ncols=2, loc="upper left")
    below[-1].set_xlabel(words["tokens"])
    return figure
