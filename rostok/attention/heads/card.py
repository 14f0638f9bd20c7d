"""The report card of report.py as people see it: a table, CSV, or a picture with one cell a head.

Everything here takes the card that report.report made (a dict that is also its JSON) and computes nothing new.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rostok.attention.heads.capture import verified
from rostok.attention.languages import section
from rostok.attention.pictures import picture, plain
from rostok.files import write_out

AS_MANY = "random, as many as "  # the name of a group of heads at random
COLUMNS = ("prev", "self", "bos", "dup", "local", "ind", "ind_story", "copy", "posr2", "ent", "maxw", "dist")


def best_scan(head: Mapping[str, Any]) -> dict[str, Any]:
    """The induction score that counts: of random tokens, or of story slices where that is higher; `on` says which."""
    scores = head["scores"]
    found = [
        dict(scores[name], on=on)
        for name, on in (("ind", "random"), ("ind_story", "story"))
        if name in scores
    ]
    return max(found, key=lambda scan: scan["v"] or 0.0)


def label_text(labels: Sequence[Mapping[str, Any]], lang: str) -> str:
    """ "previous 0.46 / partly start 0.38"; a shift other than 1 is said."""
    words, parts = section(lang, "heads"), []
    for label in labels:
        shift = f" k={label['shift']}" if label.get("shift", 1) != 1 else ""
        on = f" ({words[label['on']]})" if label.get("on") == "story" else ""
        parts.append(f"{words[label['confidence']]}{words[label['kind']]}{shift} {label['score']:.2f}{on}")
    return " / ".join(parts) or words["other"]


def table(card: Mapping[str, Any], lang: str) -> str:
    """The card as text: a line a head, then groups, ◆, thresholds, context."""
    words = section(lang, "heads")
    kinds = card.get("ablation", {}).get("kinds", [])
    lines = [words["texts"].format(**card["texts"]), verified(card["checks"]["max_error"], lang), ""]
    lines.append("  L H " + " ".join(f"{name:>9}" for name in COLUMNS) + "  k*  " + words["label"])
    for head in card["heads"]:
        cells = " ".join(f"{shown(head['scores'].get(name, {}).get('v')):>9}" for name in COLUMNS)
        text = label_text(head["labels"], lang) + "".join(delta_text(head, kind, words) for kind in kinds)
        lines.append(f"{head['layer'] + 1:>3} {head['head'] + 1} {cells} {best_scan(head)['k']:>3}  {text}")
    bases = [card["heads"][0]["scores"].get(name, {}).get("base") for name in COLUMNS]
    lines.append("      " + " ".join(f"{shown(base):>9}" for base in bases) + f"      {words['base']}")
    for entry in card.get("groups", []):
        lines.append(
            f"{group_text(entry['name'], words)} ({len(entry['heads'])})"
            + "".join(delta_text(entry, kind, words) for kind in kinds)
        )
    lines += ["", *start_lines(card, lang)]
    for row in card["sensitivity"]:
        counts = ", ".join(f"{words[kind]} {n}" for kind, n in row["labels"].items())
        lines.append(words["changed"].format(**{**row, "labels": counts}))
    if "icl" in card:
        lines.append(words["icl"].format(**card["icl"]))
    return "\n".join(lines)


def shown(x: float | None) -> str:
    return "–" if x is None else f"{x:.3f}"


def group_text(name: str, words: Mapping[str, str]) -> str:
    """A group's name in the language of the words: "induction", "random, as many as induction", "layer 3"."""
    if name.startswith(AS_MANY):
        return f"{words['as_many']} {words[name.removeprefix(AS_MANY)]}"
    return " ".join(words.get(part, part) for part in name.split(" "))


def delta_text(entry: Mapping[str, Any], kind: str, words: Mapping[str, str]) -> str:
    """The change of the loss of all targets and of repeated pairs."""
    parts = []
    for name in ("all", "pair"):
        cell = entry["ablation"][kind].get(name)
        if cell:
            bounds = " [{:+.3f}, {:+.3f}]".format(*cell["interval"]) if cell["interval"] else ""
            parts.append(f"{words[name]} {cell['nats']:+.4f}{bounds}")
    return f"  Δ{kind}: " + ", ".join(parts)


def start_lines(card: Mapping[str, Any], lang: str) -> list[str]:
    """What the tests of ◆ found, in sentences."""
    test = card["start"]
    sinks = [head for head in card["heads"] if is_sink(head)]
    bounds = sorted({(head["layer"] + 1, head["score_bound"]) for head in card["heads"]})
    limits = ", ".join(f"{layer}: {bound:.1f}" for layer, bound in bounds)
    most = max(head["score_max"] or 0 for head in card["heads"])
    words = section(lang, "heads")
    lines = [words["bound"].format(limits=limits, most=most), words["sink"].format(n=len(sinks))]
    if test:
        cells = [test["evict"]["nats"], test["evict_random"]["nats"], *test["replace"].values()]
        lines.append(words["evict"].format(*cells))
    return lines


def is_sink(head: Mapping[str, Any]) -> bool:
    bos, written = head["scores"]["bos"]["v"], head["scores"]["start_written"]["v"]
    return bos >= 0.3 and written < bos / 3


def write(out: Path, card: Mapping[str, Any], lang: str) -> None:
    kind = out.suffix.lower()
    if kind == ".json":
        write_out(out, json.dumps(card, ensure_ascii=False, allow_nan=False))
    elif kind == ".csv":
        write_out(out, as_csv(card))
    else:
        write_out(out, picture(draw(card, lang), kind[1:]))


def as_csv(card: Mapping[str, Any]) -> str:
    """A comment line on what was verified, then a line a head: labels, scores, k*, changes of the loss."""
    out = io.StringIO()
    out.write(f"# {card['checks']['verified']}\n")
    writer = csv.writer(out, lineterminator="\n")
    kinds = card.get("ablation", {}).get("kinds", [])
    names = list(card["heads"][0]["scores"])
    writer.writerow(["layer", "head", "label", *names, "k", *(f"delta_{kind}" for kind in kinds)])
    for head in card["heads"]:
        values = [head["scores"][name]["v"] for name in names]
        changed = [head["ablation"][kind]["all"]["nats"] for kind in kinds]
        label = label_text(head["labels"], "en")
        writer.writerow([head["layer"], head["head"], label, *values, best_scan(head)["k"], *changed])
    return out.getvalue()


COLOURS = {
    "induction": "#f4a259", "previous": "#7fb7e6", "duplicate": "#c9a0dc", "start": "#bfc7d1",
    "self": "#e8d174", "local": "#a8d5ba", "other": "#f6f6f4",
}  # fmt: skip


def draw(card: Mapping[str, Any], lang: str) -> Any:
    """A cell a head: its colour is the first label; its numbers PREV, BOS, IND and DUP."""
    from matplotlib.figure import Figure

    words, heads = section(lang, "heads"), card["heads"]
    n_layer, n_head = heads[-1]["layer"] + 1, heads[-1]["head"] + 1
    figure = Figure(figsize=(1.5 * n_head + 1.0, 0.85 * n_layer + 1.4), dpi=150, layout="constrained")
    axes = figure.subplots()
    for head in heads:
        x, y = head["head"], head["layer"]
        first = head["labels"][0] if head["labels"] else {"kind": "other", "confidence": "partial"}
        alpha = 1.0 if first["confidence"] == "strong" else 0.55
        axes.fill(
            [x, x + 1, x + 1, x], [y, y, y + 1, y + 1], COLOURS[first["kind"]], alpha=alpha, ec="white", lw=2
        )
        scores, scan = head["scores"], best_scan(head)
        title = label_text(head["labels"], lang).replace(" / ", "\n")
        values = (
            f"prev {shown(scores['prev']['v'])}  ◆ {shown(scores['bos']['v'])}\n"
            f"ind {shown(scan['v'])}  dup {shown(scores['dup']['v'])}"
        )
        axes.text(x + 0.5, y + 0.3, title, ha="center", va="center", fontsize=6.5, weight="bold")
        axes.text(x + 0.5, y + 0.76, values, ha="center", va="center", fontsize=5.5, color="#333333")
    axes.set(xlim=(0, n_head), ylim=(n_layer, 0))
    axes.set_xticks(np.arange(n_head) + 0.5, [f"{words['head']} {i + 1}" for i in range(n_head)], fontsize=7)
    axes.set_yticks(
        np.arange(n_layer) + 0.5, [f"{words['layer']} {i + 1}" for i in range(n_layer)], fontsize=7
    )
    axes.tick_params(length=0)
    texts = words["texts"].format(**card["texts"])
    title = f"{card['model']['name']}: {texts}\n{verified(card['checks']['max_error'], lang)}"
    axes.set_title(plain(title), fontsize=7)
    return figure
