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
from rostok.measuring.seeds import difference as difference_of
from rostok.measuring.seeds import sentence as seeds_sentence
from rostok.measuring.seeds import spread_of_mean
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
    """Numbers of every row and its difference from the first, with 95 % intervals.

    A paired bootstrap over texts; where both rows know what a seed does, Student's t over seeds and texts instead.
    """
    same = same_targets(rows)
    units = resampling_units(rows[0].targets) if same else rows[0].targets.text_of
    per_unit = [sums_of(row, units, same) for row in rows]  # each (seeds, U)
    weights = (
        np.bincount(units).astype(np.float64) if same else group_sums(rows[0].targets.target_bytes, units)
    )
    unit = "nats per token" if same else "bits per byte"
    sums = np.stack([each.mean(0) for each in per_unit])  # (K, U)
    draws = bootstrap(sums, weights, seed=seed) if np.count_nonzero(weights) > 1 else None
    lines, words = [numbers(row) for row in rows], []
    for k, line in enumerate(lines):
        line["interval"] = interval(draws[:, k]) if draws is not None else None
        line["difference"] = float((sums[k].sum() - sums[0].sum()) / weights.sum()) if weights.any() else 0.0
        line["difference_interval"] = interval(draws[:, k] - draws[:, 0]) if draws is not None and k else None
        if rows[k].seeds > 1 and draws is not None:
            line["interval"] = spread_of_mean(per_unit[k], weights)
            line["seed_sd"] = difference_of(per_unit[k], per_unit[k], weights).spread[0]
        if k and draws is not None and knows_seeds(rows[k]) and knows_seeds(rows[0]):
            found = difference_of(per_unit[k], per_unit[0], weights)
            line |= {"difference_interval": (found.low, found.high), "smallest": found.smallest}
            line["verdict"] = found.verdict
            words.append(seeds_sentence(line["name"], lines[0]["name"], found, unit))
        elif k:
            words.append(
                verdict(line["name"], lines[0]["name"], line["difference"], line["difference_interval"], unit)
            )
    return {
        "held_out": held_out(rows[0].targets) | ({} if same else {"targets": None, "sha256": None}),
        "same_tokenizer": same,
        "unit": unit,
        "resampled": f"{len(weights)} "
        + ("texts" if len(weights) == rows[0].targets.n_texts else "stretches of text"),
        "rows": lines,
        "words": words,
    }


def sums_of(row: Entry, units: np.ndarray, same: bool) -> np.ndarray:
    """(seeds, U): nats of each unit; where tokenizers differ, bits without the closing ◆, which has no bytes."""
    members = row.members or (row.losses,)
    if same:
        return np.stack([group_sums(one.nats, units) for one in members])
    own = row.targets.text_of
    return np.stack([group_sums(np.where(row.targets.ends, 0, one.nats), own) for one in members]) / LN2


def knows_seeds(row: Entry) -> bool:
    """Whether a row says what another seed would do: it has several, or it only counts."""
    return row.seeds > 1 or row.counts


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
        "seeds": 0 if row.counts else row.seeds,
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


CLEAN = "without the texts that hold characters which training never had"
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


def cells(result: dict[str, Any], wide: bool = True) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table of numbers, as strings."""
    head = ["model", "sees", *COLUMNS]
    lines = []
    for row in result["rows"]:
        line = [row["name"], f"{row['context']:,}", f"{row['nats']:.4f}", bounds(row["interval"])]
        line += [number(row["perplexity"]), f"{row['bits']:.3f}", number(row["bits_per_byte"], 4)]
        line += [f"{row['nats_on_ends']:.3f}", f"{row['accuracy']:.1%}"]
        lines.append([*line, difference(row)])
    keep = range(len(head))
    if not result["same_tokenizer"]:  # a token is not the same thing for each row: what counts tokens goes
        keep = [0, 1, 6, 3, 9]
    elif not wide:
        keep = [0, 1, 2, 3, 4, 6]
    return [head[i] for i in keep], [[line[i] for i in keep] for line in lines]


def about_cells(result: dict[str, Any], wide: bool = True) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table of what the models are: sizes, and the settings in which the runs differ."""
    differ = list(dict.fromkeys(name for row in result["rows"] for name in row.get("settings", {})))
    sizes = ["embedding", "first layer / blocks", "output"] if wide else []
    head = ["model", *sizes, "parameters", "tokens", "seconds", *(differ if wide else differ[:3])]
    lines = []
    for row in result["rows"]:
        groups = row.get("parameters")
        if groups is None:
            continue
        inner = sum(n for name, n in groups.items() if name not in ("embedding", "head"))
        head_size = f"{groups['head']:,}" if groups["head"] else "tied"
        line = [f"{groups['embedding']:,}", f"{inner:,}", head_size] if wide else []
        tokens, seconds = row.get("tokens"), row.get("seconds")
        line += [f"{sum(groups.values()):,}", "?" if tokens is None else f"{tokens:,}"]
        line += ["?" if seconds is None else f"{seconds:,.0f}"]
        lines.append(
            [
                row["name"],
                *line,
                *(str(row.get("settings", {}).get(name, "")) for name in head[len(line) + 1 :]),
            ]
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
    lines.append(f"intervals 95 %, {interval_words(result)}")
    return lines + common_words(result) + [f"note      {note}" for note in result.get("notes", [])]


def interval_words(result: dict[str, Any]) -> str:
    """What the intervals know."""
    words = f"paired bootstrap over {result['resampled']}, 1,000 draws"
    if any(row.get("seed_sd") is not None for row in result["rows"]):
        return f"rows with several seeds: Student's t over seeds and texts together; others: {words}"
    return f"{words}; one training seed a row, and another seed may move a row by more"


def common_words(result: dict[str, Any]) -> list[str]:
    """What the held-out text has that training never had, and what both have."""
    common = result.get("common")
    if not common:
        return []
    characters = " ".join(common["characters"][:20])
    new = f"{common['new_targets']:,} targets in {common['new_texts']:,} texts hold characters that training never had"
    return [
        f"new       {new}" + (f": {characters}" if characters else ""),
        f"overlap   {common['shared_texts']:,} texts share a run of {common['run']} tokens with the training text: "
        f"{common['shared_share']:.1%} of the targets",
    ]


def seed_words(result: dict[str, Any]) -> list[str]:
    return [
        f"{row['name']}: {row['seeds']} seeds, standard deviation over seeds {row['seed_sd']:.4f} {result['unit']}"
        for row in result["rows"]
        if row.get("seed_sd") is not None
    ]


def as_text(result: dict[str, Any], wide: bool = False) -> str:
    """The comparison for a terminal: tables of 80 columns, or all of their columns."""
    width = None if wide else 80
    parts = ["\n".join(introduction(result)), plain_table(*cells(result, wide), width)]
    about = about_cells(result, wide)
    if about[1]:
        parts.append(plain_table(*about, width))
    parts.append("\n".join([*result["words"], *seed_words(result)]))
    if result.get("clean"):
        parts += [
            CLEAN + ":",
            plain_table(*cells(result["clean"], wide), width),
            "\n".join(result["clean"]["words"]),
        ]
    if result.get("narrow"):
        parts += [sample_words(result["narrow"]) + ":", plain_table(*cells(result["narrow"], wide), width)]
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
    numbers = [
        "context",
        "seeds",
        "targets",
        "nats_sum",
        "nats",
        "perplexity",
        "bits",
        "bits_per_byte",
        "nats_on_ends",
    ]
    numbers += ["accuracy"]
    differ = list(dict.fromkeys(name for row in result["rows"] for name in row.get("settings", {})))
    columns = [
        "name",
        *numbers,
        "nats_low",
        "nats_high",
        "difference",
        "difference_low",
        "difference_high",
        *differ,
    ]
    lines = []
    for row in result["rows"]:
        ends = [*(row["interval"] or ("", "")), row["difference"], *(row["difference_interval"] or ("", ""))]
        settings = [row.get("settings", {}).get(name, "") for name in differ]
        lines.append([row["name"], *(row[name] for name in numbers), *ends, *settings])
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
    parts += [markdown_list([*result["words"], *seed_words(result)])]
    if result.get("clean"):
        parts += [
            f"The same {CLEAN}:",
            markdown_table(*cells(result["clean"])),
            markdown_list(result["clean"]["words"]),
        ]
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
