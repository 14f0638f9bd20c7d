"""`attend.py forming`: the heads as they form during training, against the loss.

    python train.py configs/rostok.yaml probe.every=100         # writes {"step": ..., "heads": {...}} to metrics.jsonl
    python attend.py forming checkpoints/rostok --out forming.png

A probe reads a few rows of repeated random tokens, always the same, with the NumPy reference: no random state
and no bit of the training is touched. The scores are those of scores.py. Leaves out labels and ablation (heads.py).
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from rostok.attention.maps import check_out, picture, write_file
from rostok.attention.reference import Array, forward
from rostok.attention.scores import induction, probes_for, shifts_for, text_scores, token_pool
from rostok.errors import UserError
from rostok.metrics import read_metrics
from rostok.tokenizer import Tokenizer

KINDS = ("induction", "previous", "start")


@dataclass(frozen=True)
class ProbeConfig:
    """Whether and how often a training looks at its heads."""

    every: Annotated[int, Field(ge=0)] = 0  # steps; 0: never


def probe_heads(
    weights: Mapping[str, Array], config: Mapping[str, Any], pool: Array, seed: int = 0
) -> dict[str, list[list[float]]]:
    """Induction, previous-token and start scores of all heads, (L, H) lists, from one small set of repeated tokens.

    Induction is the best shift >= 1 of the minimum over periods. weights: name -> float32 array, as
    rostok.attention.reference.forward takes them; pool: the ids to draw from.
    """
    start_id, rng = int(config["start_id"]), np.random.default_rng(seed)
    probes = probes_for(int(config["context"]), pool, start_id, rng, rows=1)
    shifts, by_probe, others = shifts_for(probes), [], []
    for probe in probes:
        trace: dict[str, Array] = {}
        forward(weights, config, probe.ids, trace, keep=lambda name: name.endswith("attn.pattern"))
        maps = np.stack(list(trace.values()))
        by_probe.append(induction(maps, probe.ids, probe.asked, shifts, start_id))
        scores = text_scores(maps, probe.ids, start_id)
        others.append(np.stack([scores["prev"], scores["bos"]]))
    found = (np.min(by_probe, axis=0)[1:].max(0), *np.mean(others, axis=0))
    return {
        name: np.round(values.astype(float), 4).tolist() for name, values in zip(KINDS, found, strict=True)
    }


def check_probes(context: int, tokenizer: Tokenizer) -> None:
    """Raise UserError where a model of this context and tokenizer cannot be probed: before a training, not in it."""
    pool = token_pool(tokenizer, np.zeros(tokenizer.vocab_size))
    probes_for(context, pool, tokenizer.start_id, np.random.default_rng(0), rows=1)


def probe_model(
    tensors: Mapping[str, Any], config: Mapping[str, Any], tokenizer: Tokenizer
) -> dict[str, list[list[float]]]:
    """probe_heads of a model in training: its state dict (torch tensors, any type, on the CPU) and settings."""
    weights = {name: tensor.float().numpy() for name, tensor in tensors.items()}
    return probe_heads(weights, config, token_pool(tokenizer, np.zeros(tokenizer.vocab_size)))


# ---- attend.py forming -------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py forming`."""
    add = parser.add_argument
    add("run", metavar="RUN", help="a run folder that was trained with probe.every=N")
    add("--out", metavar="FILE", help="forming.png or .svg")
    add("--force", action="store_true", help="overwrite an existing file")
    add("--json", action="store_true", help="print JSON instead of text")
    add("--lang", choices=("en", "ru"), default="en", help="the language of what is printed and drawn (en)")


def run(args: argparse.Namespace) -> int:
    """`attend.py forming`: read metrics.jsonl, print the strongest head of each kind by step, draw all."""
    out = check_out(args.out, (".png", ".svg"), args.force)
    folder = Path(args.run)
    name = folder.resolve().name
    records = read_metrics(folder / "metrics.jsonl")
    probed = [record for record in records if "heads" in record]
    if not probed:
        raise UserError(f"{folder} has no probes in metrics.jsonl; train with probe.every=100, say")
    if out:
        write_file(out, picture(draw(records, name, args.lang), out.suffix.lower()[1:]))
    if args.json:
        rows = [{key: record[key] for key in ("step", "tokens", "heads")} for record in probed]
        print(json.dumps({"format": "rostok-forming", "version": 1, "run": name, "probes": rows}))
        return 0
    print(table(probed, args.lang))
    if out:
        print(out)
    return 0


WORDS = {
    "en": {
        "induction": "induction", "previous": "previous token", "start": "start ◆", "step": "step",
        "loss": "loss, nats a token", "tokens": "training tokens seen", "layer": "layer",
        "title": "{name}: one line a head, on repeated random tokens",
    },
    "ru": {
        "induction": "индукция", "previous": "предыдущий токен", "start": "начало ◆", "step": "шаг",
        "loss": "потери, ната на токен", "tokens": "прочитано токенов", "layer": "слой",
        "title": "{name}: линия на голову, на повторённых случайных токенах",
    },
}  # fmt: skip


def table(probed: Sequence[Mapping[str, Any]], lang: str) -> str:
    """A line a probe: the strongest head of each kind and where it is."""
    words = WORDS[lang]
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

    words = WORDS[lang]
    figure = Figure(figsize=(8, 9), dpi=120, layout="constrained")
    top, *below = figure.subplots(4, 1, sharex=True)
    for key, style in (("loss", {"alpha": 0.4, "lw": 1}), ("valid_loss", {"lw": 2, "marker": "o", "ms": 3})):
        points = [(record["tokens"], record[key]) for record in records if key in record]
        if points:
            top.plot(*zip(*points, strict=True), color="#444444", **style)
    top.set(ylabel=words["loss"], title=words["title"].format(name=name).replace("$", r"\$"))
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
