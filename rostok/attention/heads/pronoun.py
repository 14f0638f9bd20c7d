"""`attend.py pronoun`: does a head send "he" to "Tom"?

    python attend.py pronoun checkpoints/rostok

60 short stories. The head that looks best from the pronoun to the name is chosen on 30 of them and reported on the
other 30, beside a distractor, a name of the wrong gender and a version with words put in between. This is a claim of
the chapter (docs/worked-examples.md). The stories are in the language that the run's tokenizer spells best.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostok.attention.heads.capture import Subject, look, maps_of, open_subject, steps_of, verified
from rostok.attention.heads.probes import (
    add_common_arguments,
    mean_and_interval,
    pieces_at,
    publish,
    with_interval,
)
from rostok.attention.heads.scores import number, positional_share
from rostok.attention.heads.stories import note_letters, stories_of
from rostok.attention.languages import section
from rostok.attention.reference import Array
from rostok.errors import UserError
from rostok.files import check_out

CHAPTER = 0.82  # "he" -> "Tom", layer 6 head 4 of the chapter's checkpoint


@dataclass(frozen=True)
class Prompt:
    """ids (T,), the last of which is the pronoun; the positions of the name's pieces and of the distractor's."""

    ids: Array
    name: list[int]
    distractor: list[int]


def prompts(subject: Subject, seed: int, between: bool = False, wrong: bool = False) -> list[Prompt]:
    """60 stories, 20 names in 3 frames, each version in the same random order.

    between: with sentences before the pronoun; wrong: with the other gender's pronoun.
    """
    words, made = stories_of(subject, "pronoun"), []
    for name in (*words["boys"], *words["girls"]):
        boy = name in words["boys"]
        pronoun = words["he" if boy != wrong else "she"]
        for frame in words["frames"]:
            text = frame["boy" if boy else "girl"].format(n=name) + words["between"] * between
            made.append(prompt(subject, f"{text}{frame['ask']} {pronoun}", name, frame["noun"]))
    order = np.random.default_rng(seed).permutation(len(made))
    return [made[i] for i in order]


def prompt(subject: Subject, text: str, name: str, noun: str) -> Prompt:
    ids = [subject.tokenizer.start_id, *subject.tokenizer.encode(text)]
    if len(ids) > subject.context:
        raise UserError(
            f"the stories have up to {len(ids)} tokens, {subject.name} sees only {subject.context}"
        )
    ends = np.cumsum([0, *(len(subject.tokenizer.token_bytes(i)) for i in ids[1:])])
    found = [i for i in range(len(text)) if text.startswith(name, i)]
    pieces = [i for begin in found for i in pieces_at(text, begin, len(name), ends)]
    return Prompt(np.array(ids), pieces, pieces_at(text, text.index(noun), len(noun), ends))


def looks(subject: Subject, made: Sequence[Prompt]) -> tuple[Array, Array]:
    """(prompts, L, H) the weight that the pronoun gives to the name's pieces, and to the distractor's."""
    rows = [maps_of(subject, p.ids)[:, :, -1] for p in made]  # (L, H, T) each
    names = [row[..., p.name].sum(-1) for row, p in zip(rows, made, strict=True)]
    nouns = [row[..., p.distractor].sum(-1) for row, p in zip(rows, made, strict=True)]
    return np.stack(names), np.stack(nouns)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py pronoun`."""
    parser.add_argument("run", metavar="RUN", help="a run folder, a step folder, RUN/latest or RUN/best")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """`attend.py pronoun`: choose a head on half of the stories, report it on the other half."""
    out = check_out(args.out, (".json",), args.force)
    subject = open_subject(args.run)
    note_letters(subject, stories_of(subject, "pronoun")["frames"][0]["girl"], args.lang)
    found = pronoun_probe(subject, args.seed)
    return publish({"format": "rostok-pronoun", "book": CHAPTER, **found}, pronoun_text, out, args)


def pronoun_probe(subject: Subject, seed: int = 0) -> dict[str, Any]:
    """The best head on 30 stories; on the other 30 its mean weight on the name, the share of stories with at least
    half, and the same for a distractor, the wrong pronoun and a version with 20 words in between.
    """
    made = prompts(subject, seed)
    checks = look(subject, made[0].ids.tolist()).checks
    names, nouns = looks(subject, made)
    half = len(made) // 2
    shares, means = (names[:half] >= 0.5).mean(0), names[:half].mean(0)
    best = int(np.argmax(shares + 1e-3 * means))  # by share; by mean weight among equals
    layer, head = (int(i) for i in np.unravel_index(best, means.shape))
    wrong, _ = looks(subject, prompts(subject, seed, wrong=True)[half:])
    apart, _ = looks(subject, prompts(subject, seed, between=True)[half:])
    values = {
        "name": names[half:],
        "distractor": nouns[half:],
        "wrong_pronoun": wrong,
        "words_between": apart,
    }
    return {
        "model": subject.name, "layer": layer, "head": head, "chosen_on": half,
        "chosen_mean": number(means[layer, head]), "chosen_share": number(shares[layer, head]),
        "held_out": {name: of_head(array[:, layer, head]) for name, array in values.items()},
        "distance": distances(made), "posr2": number(head_posr2(subject, made[half:], layer, head)),
        "checks": {"max_error": max(checks.row_sums, checks.sdpa), "verified": checks.line()},
        "all_heads": [[number(x) for x in row] for row in names[half:].mean(0)],
    }  # fmt: skip


def of_head(weights: Array) -> dict[str, Any]:
    """Of one head's weights (stories,): the share that is at least half, and the mean."""
    half = (weights >= 0.5).astype(float)
    return {"share": mean_and_interval(half.tolist()), "weight": mean_and_interval(weights.tolist())}


def distances(made: Sequence[Prompt]) -> list[int]:
    """The smallest and the largest number of tokens from the name's last piece to the pronoun."""
    found = [len(p.ids) - 1 - max(p.name) for p in made]
    return [min(found), max(found)]


def head_posr2(subject: Subject, made: Sequence[Prompt], layer: int, head: int) -> float:
    """POSR2 of one head, mean over stories: near 1 it would look there whatever stood there."""
    step, values = f"blocks.{layer}.attn.scaled", []
    for p in made:
        values.append(positional_share(steps_of(subject, p.ids, step)[step][head]))
    return float(np.mean(values))


def pronoun_text(record: Mapping[str, Any], lang: str) -> str:
    words = section(lang, "pronoun")
    where = {"layer": record["layer"] + 1, "head": record["head"] + 1, "model": record["model"]}
    lines = [
        words["head"].format(**where, n=record["chosen_on"], mean=record["chosen_mean"]),
        words["columns"],
    ]
    for name, row in record["held_out"].items():
        cells = [with_interval(row[key]) for key in ("share", "weight")]
        lines.append(f"{words[name]:<24} {cells[0]:<26} {cells[1]}")
    lines.append(words["posr2"].format(record["posr2"], *record["distance"]))
    lines.append(verified(record["checks"]["max_error"], lang))
    return "\n".join([*lines, words["book"].format(record["book"])])
