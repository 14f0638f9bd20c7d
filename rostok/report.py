"""From losses to words: the table of a comparison, its intervals and sentences, as text, Markdown, CSV and JSON.

    result = tabulate(rows)          # rows: what each model paid for the same targets; a dict ready for JSON
    print(as_text(result))

All of it is a function of the rows alone, so that the same runs give the same bytes. Rows with other targets are refused;
rows whose tokenizers differ, over the same text, are compared in bits a byte only. Left out: timing (see benchmarks).
"""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rostok.errors import UserError
from rostok.evaluate import (
    Losses,
    TargetList,
    bits_per_byte,
    bootstrap,
    group_sums,
    interval,
    perplexity,
    resampling_units,
    verdict,
)

LN2 = math.log(2)


@dataclass(frozen=True)
class Row:
    """One line of a table: a model's name, the tokens it may look back at, its losses, and what is known of it."""

    name: str
    context: int
    targets: TargetList
    losses: Losses
    about: dict[str, Any] = field(default_factory=dict)  # parameters by group, tokens, seconds, step, tokenizer


def same_targets(rows: Sequence[Row]) -> bool:
    """True when all rows have one target list, False when they have only the same text. Raises UserError otherwise."""
    first = rows[0]
    for row in rows[1:]:
        if row.targets.texts_sha256 != first.targets.texts_sha256:
            raise UserError(
                f"{first.name} and {row.name} were scored on different held-out texts (SHA-256 "
                f"{first.targets.texts_sha256[:12]} and {row.targets.texts_sha256[:12]}); name one folder for both with --data"
            )
    return all(row.targets.sha256 == first.targets.sha256 for row in rows)


def tabulate(rows: Sequence[Row], seed: int = 0) -> dict[str, Any]:
    """Numbers of every row and its difference from the first, with 95 % intervals of a paired bootstrap over texts."""
    same = same_targets(rows)
    if same:
        units = resampling_units(rows[0].targets)
        sums = np.stack([group_sums(row.losses.nats, units) for row in rows])  # (K, U)
        weights, unit = np.bincount(units).astype(np.float64), "nats a token"
    else:  # the ids differ, the texts and their bytes are the same: only text, not its ends, can be shared out
        sums = np.stack([group_sums(np.where(r.targets.ends, 0, r.losses.nats), r.targets.text_of) for r in rows]) / LN2
        weights = group_sums(rows[0].targets.target_bytes, rows[0].targets.text_of)
        unit = "bits a byte"
    draws = bootstrap(sums, weights, seed=seed) if np.count_nonzero(weights) > 1 else None
    lines = [numbers(row) for row in rows]
    for k, line in enumerate(lines):
        line["interval"] = interval(draws[:, k]) if draws is not None else None
        line["difference"] = float((sums[k].sum() - sums[0].sum()) / weights.sum()) if weights.any() else 0.0
        line["difference_interval"] = interval(draws[:, k] - draws[:, 0]) if draws is not None and k else None
    words = [
        verdict(lines[k]["name"], lines[0]["name"], lines[k]["difference"], lines[k]["difference_interval"], unit)
        for k in range(1, len(lines))
    ]
    return {
        "held_out": held_out(rows[0].targets) | ({} if same else {"targets": None, "sha256": None}),
        "same_tokenizer": same,
        "unit": unit,
        "resampled": f"{len(weights)} " + ("texts" if len(weights) == rows[0].targets.n_texts else "stretches of text"),
        "rows": lines,
        "words": words,
    }


def held_out(targets: TargetList) -> dict[str, Any]:
    """What was predicted: counts and hashes."""
    return {
        "texts": targets.n_texts,
        "targets": len(targets),
        "ends": targets.n_texts,
        "bytes": targets.n_bytes,
        "sha256": targets.sha256,
        "texts_sha256": targets.texts_sha256,
    }


def numbers(row: Row) -> dict[str, Any]:
    """The measures of one row. `bits_per_byte` leaves the closing ◆ out; `nats_on_ends` is their mean."""
    nats, ends = row.losses.nats, row.targets.ends
    mean = float(nats.mean())
    return {
        "name": row.name,
        "context": row.context,
        "targets": len(nats),
        "nats_sum": float(nats.sum()),
        "nats": mean,
        "perplexity": perplexity(mean),
        "bits": mean / LN2,
        "bits_per_byte": bits_per_byte(float(nats[~ends].sum()), row.targets.n_bytes),
        "nats_on_ends": float(nats[ends].mean()),
        "accuracy": float(row.losses.hits.mean()),
        **row.about,
    }


COLUMNS = ("nats/token", "[95 %]", "perplexity", "bits/token", "bits/byte", "on ◆", "right", "from the first [95 %]")


def cells(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table of numbers, as strings."""
    head = ["model", "sees", *COLUMNS]
    lines = []
    for row in result["rows"]:
        line = [row["name"], f"{row['context']:,}", f"{row['nats']:.4f}", bounds(row["interval"])]
        line += [number(row["perplexity"]), f"{row['bits']:.3f}", number(row["bits_per_byte"], 4)]
        line += [f"{row['nats_on_ends']:.3f}", f"{row['accuracy']:.1%}"]
        lines.append([*line, difference(row)])
    if not result["same_tokenizer"]:  # a token is not the same thing for each row: what counts tokens goes
        keep = [0, 1, 6, 3, 9]
        head = [head[i] for i in keep]
        lines = [[line[i] for i in keep] for line in lines]
    return head, lines


def about_cells(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table of what the models are."""
    head = ["model", "embedding", "first layer / blocks", "output", "all", "trained on tokens", "in seconds"]
    lines = []
    for row in result["rows"]:
        groups = row.get("parameters")
        if groups is None:
            continue
        inner = sum(n for name, n in groups.items() if name not in ("embedding", "head"))
        head_size = f"{groups['head']:,}" if groups["head"] else "tied"
        line = [row["name"], f"{groups['embedding']:,}", f"{inner:,}", head_size, f"{sum(groups.values()):,}"]
        tokens, seconds = row.get("tokens"), row.get("seconds")
        lines.append([*line, "?" if tokens is None else f"{tokens:,}", "?" if seconds is None else f"{seconds:,.0f}"])
    return head, lines


def number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "n/a"
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.2e}"


def bounds(pair: Sequence[float] | None) -> str:
    return f"[{pair[0]:.4f}, {pair[1]:.4f}]" if pair else "n/a"


def difference(row: dict[str, Any]) -> str:
    if row["difference_interval"] is None:
        return f"{row['difference']:+.4f}" if row["difference"] else "–"
    low, high = row["difference_interval"]
    return f"{row['difference']:+.4f} [{low:+.4f}, {high:+.4f}]"


def plain_table(head: list[str], lines: list[list[str]]) -> str:
    """Columns in line, for a terminal; the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    rows = [
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True)))
        for line in [head, *lines]
    ]
    return "\n".join(row.rstrip() for row in rows)


def introduction(result: dict[str, Any]) -> list[str]:
    """The lines that belong beside every number: what was predicted, and how."""
    told = result["held_out"]
    counts = f"{told['texts']:,} texts, {told['bytes']:,} bytes"
    lines = [f"held out  {result.get('data', '?')}: {counts}"]
    if result["same_tokenizer"]:
        lines[0] += f", {told['targets']:,} targets ({told['ends']:,} of them ◆, the end of a text)"
        lines.append(f"targets   SHA-256 {told['sha256']}")
    else:
        lines.append(f"texts     SHA-256 {told['texts_sha256']}; the tokenizers differ: only bits a byte can be compared")
    lines.append(f"protocol  {result.get('protocol', '?')}")
    lines.append(f"intervals 95 %, paired bootstrap over {result['resampled']}, 1,000 draws; one training seed a row")
    return lines


def as_text(result: dict[str, Any]) -> str:
    """The comparison for a terminal."""
    parts = ["\n".join(introduction(result)), plain_table(*cells(result))]
    about = about_cells(result)
    if about[1]:
        parts.append(plain_table(*about))
    parts.append("\n".join(result["words"]))
    return "\n\n".join(part for part in parts if part)


def as_csv(result: dict[str, Any]) -> str:
    """One line a row, one column a number."""
    columns = ["name", "context", "targets", "nats_sum", "nats", "perplexity", "bits", "bits_per_byte", "nats_on_ends"]
    columns += ["accuracy", "nats_low", "nats_high", "difference", "difference_low", "difference_high"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in result["rows"]:
        ends = [*(row["interval"] or ("", "")), row["difference"], *(row["difference_interval"] or ("", ""))]
        writer.writerow([*(row[name] for name in columns[:10]), *ends])
    return out.getvalue()
