"""The table of skills: how often each model prefers the true continuation, by skill and grade, with intervals.

    result = tabulate_skills(items, pairs, columns, known)     # columns: name -> Found of each seed; a dict for JSON
    print(skills_text(result)); skills_csv(result)

Only pairs of equally many tokens count in a skill: of unequal ones a model may prefer the shorter. They are a line of
their own. A kind (a skill and its grade) at which the trigram is right on more than 60 % can be done from two words:
it is marked * ("local") and stays out of the total.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rostok.measuring.skills.items import Item, hash_of
from rostok.measuring.skills.scoring import Found, Pair
from rostok.measuring.skills.shares import paired_interval, share_interval
from rostok.measuring.tables import csv_text, plain_table

LOCAL = 0.60
CHANCE = "chance"
COUNTING = ("trigram", "bigram", "unigram")  # the columns of models that only count


def tabulate_skills(
    items: Sequence[Item],
    pairs: Sequence[Pair],
    columns: Mapping[str, Sequence[Found]],
    unknown: Sequence[bool],
) -> dict[str, Any]:
    """Numbers of every kind and of the total. columns: a model's name -> what each of its seeds did."""
    equal = np.array([pair.equal for pair in pairs])
    kinds = list(dict.fromkeys((item.skill, item.grade) for item in items))
    which = np.array([kinds.index((item.skill, item.grade)) for item in items])
    trigram = columns.get("trigram")
    rows = []
    for k, (skill, grade) in enumerate(kinds):
        mine = (which == k) & equal
        local = bool(trigram and mine.any() and trigram[0].right[mine].mean() > LOCAL)
        rows.append({"skill": skill, "grade": grade, "items": int(mine.sum()), "local": local})
    counted = equal & ~np.array([row["local"] for row in rows])[which]
    bytes_ = np.array([max(1, pair.good_bytes) for pair in pairs])
    for k, row in enumerate(rows):
        row["models"] = {n: measure(f, (which == k) & equal, bytes_) for n, f in columns.items()}
    first = next(iter(columns))
    of_skill = np.array([item.skill for item in items])
    return {
        "set": hash_of(items),
        "items": len(items),
        "unknown_words": float(np.mean(unknown)),
        "kinds": rows,
        "skills": [
            {
                "skill": skill,
                "local": any(row["local"] for row in rows if row["skill"] == skill),
                "models": {n: measure(f, (of_skill == skill) & equal, bytes_) for n, f in columns.items()},
            }
            for skill in dict.fromkeys(item.skill for item in items)
        ],
        "total": {
            n: measure(f, counted, bytes_, columns[first] if n != first else None) for n, f in columns.items()
        },
        "unequal": {n: measure(f, ~equal, bytes_) for n, f in columns.items()},
    }


def measure(
    found: Sequence[Found], mine: np.ndarray, sizes: np.ndarray, first: Sequence[Found] | None = None
) -> dict[str, Any]:
    """Share right, margin (bad - good) in nats and per byte, over the chosen items; interval over items (and seeds)."""
    n = int(mine.sum())
    if not n:
        return {"items": 0, "right": None, "interval": None, "margin": None, "margin_per_byte": None}
    right = np.stack([each.right[mine] for each in found])  # (seeds, n)
    margins = np.mean([(each.bad - each.good)[mine] for each in found], axis=0)
    result: dict[str, Any] = {
        "items": n,
        "right": float(right.mean()),
        "interval": share_interval(right),
        "margin": float(margins.mean()),
        "margin_per_byte": float(margins.sum() / sizes[mine].sum()),
    }
    if first is not None:
        other = np.stack([each.right[mine] for each in first])
        result["difference"] = float(right.mean() - other.mean())
        result["difference_interval"] = paired_interval(right, other)
    return result


def skills_text(result: Mapping[str, Any], wide: bool = False) -> str:
    """The table for a terminal: a line a skill, or a line a kind where `wide`."""
    models = list(result["total"])
    lines = kind_lines(result, models) if wide else skill_lines(result, models)
    head = ["skill", "items", CHANCE, *models]
    for title, key in (("total", "total"), ("unequal", "unequal")):
        found = [result[key][name] for name in models]
        lines.append([title, f"{found[0]['items']:,}", "50.0%", *(share(one) for one in found)])
    words = [
        f"items     {result['items']:,}, SHA-256 {result['set'][:16]}; "
        f"{result['unknown_words']:.1%} have words that the training text never had",
        "right     share of pairs whose true continuation costs fewer nats; a tie is half; 50 % is chance",
        "*         the trigram is above 60 % on a grade: not in the total. unequal: other numbers of tokens, apart",
        "chance    a 95 % interval holds 50 %; of twenty skills at chance about one seems above or below by luck",
    ]
    table = plain_table(head, lines, None if wide else 80)
    return "\n\n".join(filter(None, ["\n".join(words), table, total_words(result), skill_words(result)]))


def share(one: Mapping[str, Any]) -> str:
    return "n/a" if one["right"] is None else f"{one['right']:.1%}"


def kind_lines(result: Mapping[str, Any], models: Sequence[str]) -> list[list[str]]:
    return [
        [
            f"{row['skill']}, {row['grade']}" + (" *" if row["local"] else ""),
            f"{row['items']:,}",
            "50.0%",
        ]
        + [share(row["models"][name]) for name in models]
        for row in result["kinds"]
    ]


def skill_lines(result: Mapping[str, Any], models: Sequence[str]) -> list[list[str]]:
    """Grades put together, each item with the same weight."""
    return [
        [row["skill"] + (" *" if row["local"] else ""), f"{row['models'][models[0]]['items']:,}", "50.0%"]
        + [share(row["models"][name]) for name in models]
        for row in result["skills"]
    ]


def total_words(result: Mapping[str, Any]) -> str:
    """A sentence for each model: its total with the interval, and whether it differs from chance and the first."""
    lines = []
    for name, one in result["total"].items():
        if one["interval"] is None:
            continue
        low, high = one["interval"]
        words = (
            f"{name}: {one['right']:.1%} [{low:.1%}, {high:.1%}], {against_chance(one)}; "
            f"margin {one['margin']:+.3f} nats"
        )
        if one.get("difference_interval"):
            a, b = one["difference_interval"]
            told = "cannot tell from" if a <= 0 <= b else "better than" if a > 0 else "worse than"
            words += f"; {told} {next(iter(result['total']))}: {one['difference']:+.1%} [{a:+.1%}, {b:+.1%}]"
        lines.append(words)
    return "\n".join(lines)


def against_chance(one: Mapping[str, Any]) -> str:
    """Where one half is: inside the interval, below it or above it."""
    low, high = one["interval"]
    return "at chance" if low <= 0.5 <= high else "above chance" if low > 0.5 else "below chance"


def skill_words(result: Mapping[str, Any]) -> str:
    """For each run the skills at which it is above chance, at chance, below chance."""
    lines = []
    for name in result["total"]:
        if name in COUNTING:
            continue
        found: dict[str, list[str]] = {"above chance": [], "at chance": [], "below chance": []}
        for row in result["skills"]:
            if row["models"][name]["interval"]:
                found[against_chance(row["models"][name])].append(row["skill"])
        told = "; ".join(f"{where}: {', '.join(skills)}" for where, skills in found.items() if skills)
        if told:
            lines.append(f"{name} {told}")
    return "\n".join(lines)


def skills_csv(result: Mapping[str, Any]) -> str:
    """One line a kind and model."""
    head = ["skill", "grade", "local", "model", "items", "right", "low", "high", "margin", "margin_per_byte"]
    lines = []
    sums = [
        {"skill": key, "grade": "", "local": False, "models": result[key]} for key in ("total", "unequal")
    ]
    for row in [*result["kinds"], *sums]:
        for name, one in row["models"].items():
            low, high = one["interval"] or ("", "")
            numbers = [one["items"], one["right"], low, high, one["margin"], one["margin_per_byte"]]
            lines.append([row["skill"], row["grade"], int(row["local"]), name, *numbers])
    return csv_text(head, lines)


def show_items(
    items: Sequence[Item], columns: Mapping[str, Sequence[Found]], skill: str, count: int = 10
) -> str:
    """Some items of a skill with what each model (its first seed) preferred."""
    chosen = [i for i, item in enumerate(items) if item.skill == skill]
    chosen = chosen[:: max(1, len(chosen) // count)][:count]
    parts = []
    for i in chosen:
        item = items[i]
        lines = [f"{item.skill}, {item.grade}: {plain(item.prefix)}"]
        lines.append(f"   true{plain(item.good)}   false{plain(item.bad)}")
        for name, found in columns.items():
            margin = found[0].bad[i] - found[0].good[i]
            word = "true" if margin > 0 else "false" if margin < 0 else "neither"
            lines.append(f"   {name} prefers {word}, by {abs(margin):.2f} nats")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def plain(text: str) -> str:
    """Text from a file with its control characters written as escapes."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
