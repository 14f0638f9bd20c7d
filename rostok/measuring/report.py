"""From losses to words: the table of a comparison, its intervals and sentences, as text, Markdown, CSV and JSON.

    result = tabulate(rows)          # rows: what each model paid for the same targets; a dict ready for JSON
    print(as_text(result))

All of it is a function of the rows alone, so that the same runs give the same bytes. Rows with other targets are
refused; rows whose tokenizers differ, over the same text, are compared in bits per byte only. Left out: timing.
"""

import math
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from rostok.errors import UserError
from rostok.measuring.intervals import bootstrap, group_sums, interval, resampling_units, verdict
from rostok.measuring.tables import (
    bounds,
    csv_text,
    markdown_list,
    markdown_table,
    number,
    plain_table,
    signed,
)
from rostok.measuring.targets import Entry, TargetList, bits_per_byte, perplexity

LN2 = math.log(2)


def same_targets(rows: Sequence[Entry]) -> bool:
    """True when all rows have one target list, False when they have only the same text. Raises UserError otherwise."""
    first = rows[0]
    for row in rows[1:]:
        if row.targets.texts_sha256 != first.targets.texts_sha256:
            raise UserError(
                f"{first.name} and {row.name} have different held-out texts (SHA-256 {first.targets.texts_sha256[:12]} "
                f"and {row.targets.texts_sha256[:12]}); name one folder of shards for both with --data"
            )
    return all(row.targets.sha256 == first.targets.sha256 for row in rows)


def tabulate(rows: Sequence[Entry], seed: int = 0) -> dict[str, Any]:
    """Numbers of every row and its difference from the first, with 95 % intervals of a paired bootstrap over texts."""
    same = same_targets(rows)
    if same:
        units = resampling_units(rows[0].targets)
        sums = np.stack([group_sums(row.losses.nats, units) for row in rows])  # (K, U)
        weights, unit = np.bincount(units).astype(np.float64), "nats per token"
    else:  # different tokenizers, same text: compare bits per byte, without the closing ◆
        sums = (
            np.stack(
                [group_sums(np.where(r.targets.ends, 0, r.losses.nats), r.targets.text_of) for r in rows]
            )
            / LN2
        )
        weights = group_sums(rows[0].targets.target_bytes, rows[0].targets.text_of)
        unit = "bits per byte"
    draws = bootstrap(sums, weights, seed=seed) if np.count_nonzero(weights) > 1 else None
    lines = [numbers(row) for row in rows]
    for k, line in enumerate(lines):
        line["interval"] = interval(draws[:, k]) if draws is not None else None
        line["difference"] = float((sums[k].sum() - sums[0].sum()) / weights.sum()) if weights.any() else 0.0
        line["difference_interval"] = interval(draws[:, k] - draws[:, 0]) if draws is not None and k else None
    words = [
        verdict(
            lines[k]["name"], lines[0]["name"], lines[k]["difference"], lines[k]["difference_interval"], unit
        )
        for k in range(1, len(lines))
    ]
    return {
        "held_out": held_out(rows[0].targets) | ({} if same else {"targets": None, "sha256": None}),
        "same_tokenizer": same,
        "unit": unit,
        "resampled": f"{len(weights)} "
        + ("texts" if len(weights) == rows[0].targets.n_texts else "stretches of text"),
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


def numbers(row: Entry) -> dict[str, Any]:
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


COLUMNS = (
    "nats/token",
    "[95 %]",
    "perplexity",
    "bits/token",
    "bits/byte",
    "on ◆",
    "right",
    "from the first [95 %]",
)


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
        lines.append(
            [*line, "?" if tokens is None else f"{tokens:,}", "?" if seconds is None else f"{seconds:,.0f}"]
        )
    return head, lines


def difference(row: dict[str, Any]) -> str:
    if row["difference_interval"] is None:
        return f"{row['difference']:+.4f}" if row["difference"] else "–"
    low, high = row["difference_interval"]
    return f"{row['difference']:+.4f} [{low:+.4f}, {high:+.4f}]"


def introduction(result: dict[str, Any]) -> list[str]:
    """The lines that belong beside every number: what was predicted, and how."""
    told = result["held_out"]
    counts = f"{told['texts']:,} texts, {told['bytes']:,} bytes"
    lines = [f"held out  {result.get('data', '?')}: {counts}"]
    if result["same_tokenizer"]:
        lines[0] += f", {told['targets']:,} targets ({told['ends']:,} of them ◆, the end of a text)"
        lines.append(f"targets   SHA-256 {told['sha256']}")
    else:
        lines.append(
            f"texts     SHA-256 {told['texts_sha256']}; the tokenizers differ: only bits per byte can be compared"
        )
    lines.append(f"protocol  {result.get('protocol', '?')}; {result.get('arithmetic', '?')}, sums in float64")
    lines.append(
        f"intervals 95 %, paired bootstrap over {result['resampled']}, 1,000 draws; one training seed a row"
    )
    return lines + [f"note      {note}" for note in result.get("notes", [])]


def as_text(result: dict[str, Any]) -> str:
    """The comparison for a terminal."""
    parts = ["\n".join(introduction(result)), plain_table(*cells(result))]
    about = about_cells(result)
    if about[1]:
        parts.append(plain_table(*about))
    parts.append("\n".join(result["words"]))
    if result.get("narrow"):
        parts += [sample_words(result["narrow"]) + ":", plain_table(*cells(result["narrow"]))]
    parts.append("\n".join(split_words(split) for split in result.get("split", [])))
    return "\n\n".join(part for part in parts if part)


def sample_words(narrow: dict[str, Any]) -> str:
    told = narrow["held_out"]
    return f"a sample of whole texts: {told['texts']:,} texts, {told['targets']:,} targets, SHA-256 {told['sha256']}"


def split_words(split: dict[str, Any]) -> str:
    """One sentence on how much of a gain is the architecture's and how much the context's."""
    shares = [
        f"{part['nats']:+.4f} {signed(part['interval'])}"
        for part in (split["architecture"], split["context"])
    ]
    return (
        f"from {split['window']} to {split['gpt']}: {shares[0]} nats per token by the architecture on the same "
        f"{split['width']} tokens ({split['narrow']}), {shares[1]} by the longer context"
    )


def as_csv(result: dict[str, Any]) -> str:
    """One line a row, one column a number."""
    columns = [
        "name",
        "context",
        "targets",
        "nats_sum",
        "nats",
        "perplexity",
        "bits",
        "bits_per_byte",
        "nats_on_ends",
    ]
    columns += ["accuracy", "nats_low", "nats_high", "difference", "difference_low", "difference_high"]
    lines = []
    for row in result["rows"]:
        ends = [*(row["interval"] or ("", "")), row["difference"], *(row["difference_interval"] or ("", ""))]
        lines.append([*(row[name] for name in columns[:10]), *ends])
    return csv_text(columns, lines)


# The report: Markdown, with figures beside it


def as_markdown(result: dict[str, Any], figures: str) -> str:
    """The whole comparison as Markdown; `figures` is the part of the figures' file names before their own."""
    parts = [
        "# Comparison on held-out text",
        markdown_list(introduction(result)),
        markdown_table(*cells(result)),
    ]
    about = about_cells(result)
    if about[1]:
        parts += ["Parameters, and what each model was trained on:", markdown_table(*about)]
    parts += [markdown_list(result["words"])]
    if result.get("narrow"):
        parts += ["## The same models, shown less", "On " + sample_words(result["narrow"]) + "."]
        parts += [markdown_table(*cells(result["narrow"])), markdown_list(result["narrow"]["words"])]
    parts += [markdown_list([split_words(split) for split in result.get("split", [])])]
    if result.get("by_position"):
        parts += ["## Loss by position in the text", f"![Loss by position]({quote(figures)}-position.png)"]
        parts += [f"Each position in {figures}-position.csv; the closing ◆ is left out."]
    if result.get("by_class"):
        parts += ["## First-seen, seen and copyable tokens", markdown_table(*class_cells(result))]
    if result.get("control"):
        parts += ["The same tokens after the beginning of another text (gain = control - actual, nats):"]
        parts += [markdown_table(*control_cells(result))]
    if result.get("sweep"):
        parts += [
            "## Loss against the context shown",
            f"![Loss against context]({quote(figures)}-context.png)",
        ]
        parts += [markdown_table(*sweep_cells(result))]
    return "\n\n".join(part for part in parts if part) + "\n"


def class_cells(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Mean nats and mean probability by class, a pair of columns a row of the table."""
    names = result["by_position"]["names"]
    head = ["class", "targets", *[f"{name}, {what}" for name in names for what in ("nats", "mean p")]]
    lines = []
    for entry in result["by_class"]:
        numbers_ = zip(entry["nats"], entry["probability"], strict=True)
        lines.append(
            [entry["class"], f"{entry['targets']:,}", *[number(x, 3) for pair in numbers_ for x in pair]]
        )
    return head, lines


def control_cells(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    head = ["class", "targets", "model", "actual", "control", "gain [95 %]"]
    lines = []
    for entry in result["control"]:
        for one in entry["rows"]:
            line = [entry["class"], f"{entry['targets']:,}", one["name"], number(one["actual"], 4)]
            gain = "n/a" if one["gain"] is None else f"{one['gain']:+.4f} {signed(one['interval'])}"
            lines.append([*line, number(one["control"], 4), gain])
    return head, lines


def sweep_csv(result: dict[str, Any]) -> str:
    points = [(curve["name"], point) for curve in result["sweep"]["curves"] for point in curve["points"]]
    lines = [[name, p["shown"], p["nats"], *(p["interval"] or ("", ""))] for name, p in points]
    return csv_text(["name", "shown", "nats", "nats_low", "nats_high"], lines)


def sweep_cells(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    head = ["model", "tokens shown", "nats/token [95 %]"]
    points = [(curve["name"], point) for curve in result["sweep"]["curves"] for point in curve["points"]]
    return head, [[name, f"{p['shown']:,}", f"{p['nats']:.4f} {bounds(p['interval'])}"] for name, p in points]
