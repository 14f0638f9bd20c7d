"""`attend.py name` and `attend.py pronoun`: two claims of the chapter (docs/worked-examples.md), measured on a run.

    python attend.py name checkpoints/rostok checkpoints/gpt-1            # a name that nobody has heard before
    python attend.py name checkpoints/rostok --name "Zorbin Plax" --json
    python attend.py pronoun checkpoints/rostok                           # does a head send "he" to "Tom"?

name: a story gives a dragon an invented name and comes back to it twice. How sure is the model of each next piece of
the name the first, second and third time? One name is an anecdote, so 50 random ones follow, and controls that take
the first mention away, swap it, move it far away, or silence the heads that should do it.
pronoun: 60 short stories; the head that looks best from the pronoun to the name is chosen on 30 of them and reported
on the other 30, beside a distractor, a name of the wrong gender and a version with words put in between.
Everything is made from a seed. A window MLP may be asked for names (it has no heads). Leaves out names within dialogue.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostok import __version__
from rostok.attention.heads.ablate import Head, all_heads, silence
from rostok.attention.heads.capture import Subject, look, maps_of, open_subject, steps_of, verified
from rostok.attention.heads.scores import (
    induction,
    number,
    positional_share,
    probes_for,
    shifts_for,
    token_pool,
)
from rostok.attention.languages import add_language_argument, section
from rostok.attention.reference import Array, Edit, forward, softmax
from rostok.errors import UserError
from rostok.files import check_out, write_out
from rostok.measuring.intervals import mean_interval
from rostok.text.reading import typed

CHAPTER_PRONOUN = 0.82  # "he" -> "Tom", layer 6 head 4 of the chapter's checkpoint (docs/worked-examples.md)
FILLERS = (10, 50, 100, 200, 400)
TOP, TOKENS = 3, 40  # heads silenced; tokens put in between

# ---- the story of a name -----------------------------------------------------------------------------------

OPENING = "Once upon a time there was a little dragon."
NAMED = " His name was{name}."
FILLER = (
    " He was green and very kind.",
    " He had a soft bed under a big tree.",
    " Every day he ate red berries and drank cold water.",
    " At night he looked at the moon and the stars.",
    " His mom told him to be good and to help his friends.",
    " They liked to play by the river and to sing songs.",
)
AGAIN = (" One day{name} went to the forest.", " The birds were happy to see{name}.")


@dataclass(frozen=True)
class Story:
    """A story as ids (T,) with the places (mentions, K) of the pieces of the name."""

    ids: Array
    mentions: Array

    @property
    def pieces(self) -> Array:
        """(K,) the name's ids."""
        return self.ids[self.mentions[0]]


def filler(subject: Subject, tokens: int) -> str:
    """Sentences without a capital Z, as many as fill `tokens` tokens, at least one."""
    text, i = "", 0
    while not text or len(subject.tokenizer.encode(text)) < tokens:
        text, i = text + FILLER[i % len(FILLER)], i + 1
    return text


def tell(subject: Subject, name: str, first: str | None = None, tokens: int = TOKENS) -> Story:
    """The story with three mentions of `name`; the first is `first` if that is given ("": there is none).

    Raises UserError where the name falls into other pieces at one mention than at another, or the story is too long.
    """
    first = name if first is None else first
    parts = [OPENING + (NAMED.format(name=f" {first}") if first else "") + filler(subject, tokens)]
    spans = [len(OPENING + " His name was")] if first == name else []
    for sentence in AGAIN:
        spans.append(len("".join(parts)) + sentence.index("{name}"))
        parts.append(sentence.format(name=f" {name}"))
    text = "".join(parts)
    ids = [subject.tokenizer.start_id, *subject.tokenizer.encode(text)]
    if len(ids) > subject.context:
        raise UserError(
            f"the story has {len(ids)} tokens, the model sees {subject.context}; give a shorter --filler"
        )
    ends = np.cumsum([0 if i == ids[0] else len(subject.tokenizer.token_bytes(i)) for i in ids])
    mentions = [pieces_at(text, begin, 1 + len(name), ends) for begin in spans]
    splits = [[subject.piece(ids[i]) for i in mention] for mention in mentions]
    if any(split != splits[0] for split in splits):
        raise UserError(
            f"the name '{name}' falls into other pieces each time: {' / '.join(map(str, splits))}; give another --name"
        )
    return Story(np.array(ids), np.array(mentions))


def pieces_at(text: str, begin: int, length: int, ends: Array) -> list[int]:
    """The places of the tokens that spell the characters begin .. begin+length of a text (bytes end at `ends`)."""
    low, high = (len(text[:cut].encode()) for cut in (begin, begin + length))
    return [i for i in range(1, len(ends)) if ends[i] > low and ends[i - 1] < high]


def check_name(subject: Subject, name: str, tokens: int = TOKENS) -> Story:
    """The story of a user's name. Raises UserError for an unfit one."""
    if not name.strip() or name != name.strip() or typed(name, "--name") != name:
        raise UserError(f"--name must be a word or two. Got {name!r}; try --name 'Zorbin Plax'")
    story = tell(subject, name, tokens=tokens)
    if len(story.pieces) < 3:
        pieces = [subject.piece(i) for i in story.pieces]
        raise UserError(
            f"'{name}' has only the pieces {pieces}; give a name of at least three, such as Zorbin Plax"
        )
    return story


# ---- what a model expects ----------------------------------------------------------------------------------


def expect(subject: Subject, ids: Array, edit: Edit | None = None) -> Array:
    """(T, V) probabilities after each token, of a GPT or a window MLP."""
    if subject.config["kind"] == "window-mlp":
        logits = window_logits(subject.weights, subject.config, ids)
    else:
        logits = forward(subject.weights, subject.config, ids, edit=edit)
    return softmax(logits.astype(np.float64))


def window_logits(weights: Mapping[str, Array], config: Mapping[str, Any], ids: Array) -> Array:
    """The window MLP in NumPy: ids (T,) -> logits (T, V). Before the text's start stands ◆."""
    window = int(config["window"])
    padded = np.concatenate((np.full(window - 1, config["start_id"]), ids))
    seen = np.lib.stride_tricks.sliding_window_view(padded, window)  # (T, window), oldest first
    x = weights["embed.weight"][seen].reshape(len(ids), -1)  # (T, window * d_embed)
    x = x @ weights["hidden.weight"].T + weights["hidden.bias"]
    x = x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))  # GELU
    return x @ weights["head.weight"].T + weights["head.bias"]


def of_mentions(expected: Array, story: Story) -> tuple[Array, Array]:
    """Probability and rank (1 is the favourite) of each piece of the name, given all before it; (mentions, K) each."""
    before = expected[story.mentions - 1]  # (mentions, K, V)
    p = np.take_along_axis(before, story.ids[story.mentions][..., None], -1)
    return p[..., 0], 1 + (before > p).sum(-1)


def later(p: Array) -> float:
    """The mean over the pieces after the first, at the second mention: what copying would raise."""
    return float(p[1, 1:].mean())


def gain(p: Array) -> float:
    """How many nats the pieces after the first become cheaper from the first to the second mention."""
    return float((np.log(p[1, 1:]) - np.log(p[0, 1:])).sum())


def random_names(subject: Subject, wanted: int, seed: int, tokens: int = TOKENS) -> list[Story]:
    """Stories of `wanted` random names of at least three pieces that are the same at each mention."""
    rng, stories, tried = np.random.default_rng(seed), [], set()
    for _ in range(40 * wanted):
        syllables = [
            "".join(rng.choice(list(letters)) for letters in ("bdfgklmnprstvz", "aeiou", "lmnrsxbdt"))
            for _ in range(int(rng.integers(2, 4)))
        ]
        name = "".join(syllables).capitalize()
        if name in tried:
            continue
        tried.add(name)
        try:
            story = tell(subject, name, tokens=tokens)
        except UserError:
            continue
        if len(story.pieces) >= 3:
            stories.append(story)
        if len(stories) == wanted:
            return stories
    raise UserError(f"only {len(stories)} of {wanted} random names have three pieces here; ask for fewer")


def mean_and_interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean over names or stories with its 95 % interval (bootstrap over them)."""
    array = np.array(values)
    bounds = mean_interval(array, np.arange(len(array)))
    return {"mean": number(array.mean()), "interval": bounds, "n": len(array)}


# ---- attend.py name ----------------------------------------------------------------------------------------


def add_name_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py name`."""
    add = parser.add_argument
    add("runs", metavar="RUN", nargs="+", help="one run or more: GPTs or window MLPs")
    add(
        "--name",
        default="Zorbin Plax",
        metavar="NAME",
        help="an invented name of at least three pieces (Zorbin Plax)",
    )
    add(
        "--filler",
        type=int,
        default=TOKENS,
        metavar="N",
        help="tokens between the first and the second mention (40)",
    )
    add("--names", type=int, default=50, metavar="N", help="random names for the control (50)")
    add_common_arguments(parser)


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--seed", type=int, default=0, help="of random names, stories and heads (0)")
    add("--out", metavar="FILE", help="also write the JSON there")
    add("--force", action="store_true", help="overwrite an existing file")
    add("--json", action="store_true", help="print JSON instead of text")
    add_language_argument(parser)


def run_name(args: argparse.Namespace) -> int:
    """`attend.py name`: measure each run, print a table a run, the chapter's claim beside it."""
    out = check_out(args.out, (".json",), args.force)
    if args.filler < 1 or args.names < 2:
        raise UserError(f"--filler must be at least 1 and --names 2. Got {args.filler} and {args.names}")
    subjects = [open_subject(path, ("gpt", "window-mlp")) for path in args.runs]
    results = [name_probe(subject, args.name, args.filler, args.names, args.seed) for subject in subjects]
    return say({"format": "rostok-name", "name": args.name, "runs": results}, name_text, out, args)


def say(found: dict[str, Any], as_text: Any, out: Any, args: argparse.Namespace) -> int:
    """Print as text or JSON, and write the JSON."""
    record = {**found, "version": 1, "created_with": __version__, "seed": args.seed}
    content = json.dumps(record, ensure_ascii=False, allow_nan=False)
    if out:
        write_out(out, content)
    print(content if args.json else as_text(record, args.lang))
    return 0


def name_probe(subject: Subject, name: str, tokens: int, names: int, seed: int) -> dict[str, Any]:
    """All that is asked about one name and its controls, of one run."""
    story = check_name(subject, name, tokens)
    p, rank = of_mentions(expect(subject, story.ids), story)
    stories = random_names(subject, names, seed, tokens)
    chances = [of_mentions(expect(subject, other.ids), other)[0] for other in stories]
    result = {
        "model": subject.name, "kind": subject.config["kind"], "pieces": subject.pieces(story.pieces), "filler": tokens,
        "p": rounded(p), "rank": rank.tolist(), "ratio": rounded(p[1] / p[0]), "gain": number(gain(p)),
        "random_names": {
            "first": mean_and_interval([float(x[0, 1:].mean()) for x in chances]),
            "second": mean_and_interval([later(x) for x in chances]),
            "third": mean_and_interval([float(x[2, 1:].mean()) for x in chances]),
            "gain": mean_and_interval([gain(x) for x in chances]),
            "second_piece": mean_and_interval([float(x[1, 1]) for x in chances]),
        },
        "controls": controls(subject, name, tokens),
        "by_filler": by_filler(subject, name),
    }  # fmt: skip
    if subject.config["kind"] == "gpt":
        result["heads"] = name_heads(subject, story)
        result["causal"] = causal(subject, stories, seed)
    return result


def rounded(values: Array) -> Any:
    return [rounded(row) for row in values] if values.ndim > 1 else [number(x) for x in values]


def controls(subject: Subject, name: str, tokens: int) -> dict[str, Any]:
    """The second piece where the first mention is another name or is missing, and a common name's return."""
    result: dict[str, Any] = {}
    for control, first in (("swapped", swapped(name)), ("no_mention", "")):
        story = tell(subject, name, first, tokens)  # its mentions are the later two
        p, _ = of_mentions(expect(subject, story.ids), story)
        result[control] = {"first": first, "p": rounded(p[0])}
    common = tell(subject, "Tom", tokens=tokens)
    absent = tell(subject, "Tom", "", tokens)
    p_named, p_absent = (of_mentions(expect(subject, s.ids), s)[0] for s in (common, absent))
    result["common"] = {"name": "Tom", "p": number(p_named[1, 0]), "p_not_named": number(p_absent[0, 0])}
    return result


def swapped(name: str) -> str:
    """The name with other letters after its first: Zorbin Plax -> Zalkem Plax."""
    first, *rest = name.split(" ")
    return " ".join([first[0] + "alkemudo"[: max(1, len(first) - 1)], *rest])


def by_filler(subject: Subject, name: str) -> list[dict[str, Any]]:
    """The pieces after the first at the second mention, by the tokens put in between, as far as the context goes."""
    rows = []
    for tokens in FILLERS:
        try:
            story = tell(subject, name, tokens=tokens)
        except UserError:  # longer than the context
            break
        p, _ = of_mentions(expect(subject, story.ids), story)
        distance = int(story.mentions[1, 0] - story.mentions[0, 0])
        rows.append(
            {
                "filler": tokens,
                "distance": distance,
                "second_piece": number(p[1, 1]),
                "later": number(later(p)),
            }
        )
    return rows


def name_heads(subject: Subject, story: Story) -> list[dict[str, Any]]:
    """NAME of all heads, strongest first: from the name's first piece, second time, to what followed it before."""
    view = look(subject, story.ids.tolist())
    weights = view.maps[:, :, story.mentions[1, 0], story.mentions[0, 1]]  # (L, H)
    order = np.argsort(-weights, axis=None, kind="stable")
    places = zip(*np.unravel_index(order, weights.shape), strict=True)
    return [{"layer": int(la), "head": int(he), "weight": number(weights[la, he])} for la, he in places]


def induction_heads(subject: Subject, seed: int, count: int = TOP) -> list[Head]:
    """The heads that match best on repeated random tokens (any shift, minimum over periods), strongest first."""
    pool = token_pool(subject.tokenizer, np.zeros(subject.tokenizer.vocab_size))
    start_id = subject.tokenizer.start_id
    probes = probes_for(subject.context, pool, start_id, np.random.default_rng(seed), 2)
    shifts, names = shifts_for(probes), {}
    for probe in probes:
        found = induction(maps_of(subject, probe.ids), probe.ids, probe.asked, shifts, start_id)
        names.setdefault(probe.name, []).append(found)
    best = np.min([np.mean(rows, axis=0) for rows in names.values()], axis=0)[1:].max(0)  # (L, H)
    order = np.argsort(-best, axis=None, kind="stable")[:count]
    return [(int(la), int(he)) for la, he in zip(*np.unravel_index(order, best.shape), strict=True)]


def causal(subject: Subject, stories: Sequence[Story], seed: int, limit: int = 20) -> dict[str, Any] | None:
    """The mean of the later pieces at the second mention with nothing silenced, without the three best induction heads
    and without three random other heads. None where a model has fewer than six heads.
    """
    if subject.n_layer * subject.n_head < 2 * TOP:
        return None
    best, rng = induction_heads(subject, seed), np.random.default_rng(seed)
    others = [place for place in all_heads(subject) if place not in best]
    edits: dict[str, list[list[Head]]] = {"clean": [], "induction": [], "random": []}
    for _ in stories[:limit]:
        drawn = [others[i] for i in rng.permutation(len(others))[:TOP]]
        for name, heads in (("clean", []), ("induction", best), ("random", drawn)):
            edits[name].append(heads)
    result: dict[str, Any] = {"heads": best}
    for name, groups in edits.items():
        chances = [
            of_mentions(expect(subject, story.ids, silence(heads)), story)[0]
            for story, heads in zip(stories, groups, strict=False)
        ]
        result[name] = mean_and_interval([later(p) for p in chances])
    return result


def with_interval(cell: Mapping[str, Any]) -> str:
    bounds = cell["interval"]
    return f"{cell['mean']:.4f}" + (f" [{bounds[0]:.4f}, {bounds[1]:.4f}]" if bounds else "")


def name_text(record: Mapping[str, Any], lang: str) -> str:
    words = section(lang, "name")
    return "\n".join(
        [words["book"], *(line for found in record["runs"] for line in name_lines(found, words))]
    )


def name_lines(found: Mapping[str, Any], words: Mapping[str, str]) -> list[str]:
    """What one run expects: a line a mention, a column a piece, then the controls."""
    pieces, random, control = found["pieces"], found["random_names"], found["controls"]
    lines = ["", f"{found['model']} ({found['kind']})"]
    lines.append(f"{words['mention']:>10} " + " ".join(f"{piece!r:>9}" for piece in pieces))
    for mention, row in enumerate(found["p"], 1):
        lines.append(f"{mention:>10} " + " ".join(f"{x:>9.4f}" for x in row))
    lines.append(f"{words['ratio']:>10} " + " ".join(f"{x:>9.3g}" for x in found["ratio"]))
    lines.append(words["gain"].format(found["gain"]))
    cells = {key: with_interval(random[key]) for key in ("first", "second", "third", "gain")}
    lines.append(words["random"].format(n=random["second"]["n"], **cells))
    lines.append(words["piece"].format(with_interval(random["second_piece"])))
    lines.append(
        words["swapped"].format(
            control["swapped"]["first"], control["swapped"]["p"][1], control["no_mention"]["p"][1]
        )
    )
    lines.append(words["common"].format(**control["common"]))
    lines.append(
        words["filler"] + ", ".join(f"{row['distance']}: {row['later']:.4f}" for row in found["by_filler"])
    )
    if "heads" in found:
        best = [f"{h['layer'] + 1}.{h['head'] + 1} {h['weight']:.3f}" for h in found["heads"][:5]]
        lines.append(words["heads"] + ", ".join(best))
    if found.get("causal"):
        cells = {key: with_interval(found["causal"][key]) for key in ("clean", "induction", "random")}
        heads = ", ".join(f"{la + 1}.{he + 1}" for la, he in found["causal"]["heads"])
        lines.append(words["causal"].format(heads=heads, **cells))
    return lines


# ---- attend.py pronoun -------------------------------------------------------------------------------------

BOYS = ("Tom", "Ben", "Tim", "Max", "Sam", "Jack", "Leo", "Bob", "Fred", "Nick")
GIRLS = ("Lily", "Mia", "Sue", "Anna", "Lucy", "Amy", "Sara", "Emma", "Mary", "Jane")
FRAMES = (  # {n} the name, {k} boy or girl, {p} the pronoun, whose look is measured
    ("Once upon a time there was a {k} named {n}. {n} had a red ball.", " One day {p}"),
    ("{n} was a little {k} who lived near a big forest with a dog.", " Every morning {p}"),
    ("Once there was a {k} called {n} and an old tree by the house.", " In the evening {p}"),
)
DISTRACTORS = (" ball", " dog", " tree")
BETWEEN = " It was a nice and sunny day. The sky was blue and the wind was warm."


@dataclass(frozen=True)
class Prompt:
    """ids (T,), the last of which is the pronoun; the places of the name's pieces and of the distractor's."""

    ids: Array
    name: list[int]
    distractor: list[int]


def prompts(subject: Subject, seed: int, between: str = "", wrong: bool = False) -> list[Prompt]:
    """60 stories, 20 names in 3 frames, each version in the same random order. wrong: the other gender's pronoun."""
    made = []
    for name in (*BOYS, *GIRLS):
        boy = (name in BOYS) != wrong
        for (opening, ask), noun in zip(FRAMES, DISTRACTORS, strict=True):
            text = opening.format(n=name, k="boy" if name in BOYS else "girl") + between
            text += ask.format(p="he" if boy else "she")
            made.append(prompt(subject, text, name, noun))
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
    pieces = [place for begin in found for place in pieces_at(text, begin, len(name), ends)]
    return Prompt(np.array(ids), pieces, pieces_at(text, text.index(noun), len(noun), ends))


def looks(subject: Subject, made: Sequence[Prompt]) -> tuple[Array, Array]:
    """(prompts, L, H) the weight that the pronoun gives to the name's pieces, and to the distractor's."""
    rows = [maps_of(subject, p.ids)[:, :, -1] for p in made]  # (L, H, T) each
    names = [row[..., p.name].sum(-1) for row, p in zip(rows, made, strict=True)]
    nouns = [row[..., p.distractor].sum(-1) for row, p in zip(rows, made, strict=True)]
    return np.stack(names), np.stack(nouns)


def add_pronoun_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py pronoun`."""
    parser.add_argument("run", metavar="RUN", help="a run folder, a step folder, RUN/latest or RUN/best")
    add_common_arguments(parser)


def run_pronoun(args: argparse.Namespace) -> int:
    """`attend.py pronoun`: choose a head on half of the stories, report it on the other half."""
    out = check_out(args.out, (".json",), args.force)
    found = pronoun_probe(open_subject(args.run), args.seed)
    return say({"format": "rostok-pronoun", "book": CHAPTER_PRONOUN, **found}, pronoun_text, out, args)


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
    place = np.unravel_index(best, means.shape)
    wrong, _ = looks(subject, prompts(subject, seed, wrong=True)[half:])
    apart, _ = looks(subject, prompts(subject, seed, between=BETWEEN)[half:])
    values = {
        "name": names[half:],
        "distractor": nouns[half:],
        "wrong_pronoun": wrong,
        "words_between": apart,
    }
    return {
        "model": subject.name, "layer": int(place[0]), "head": int(place[1]), "chosen_on": half,
        "chosen_mean": number(means[place]), "chosen_share": number(shares[place]),
        "held_out": {name: of_head(array[(slice(None), *place)]) for name, array in values.items()},
        "distance": distances(made), "posr2": number(head_posr2(subject, made[half:], int(place[0]), int(place[1]))),
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
    place = {"layer": record["layer"] + 1, "head": record["head"] + 1, "model": record["model"]}
    lines = [
        words["head"].format(**place, n=record["chosen_on"], mean=record["chosen_mean"]),
        words["columns"],
    ]
    for name, row in record["held_out"].items():
        cells = [with_interval(row[key]) for key in ("share", "weight")]
        lines.append(f"{words[name]:<24} {cells[0]:<26} {cells[1]}")
    lines.append(words["posr2"].format(record["posr2"], *record["distance"]))
    lines.append(verified(record["checks"]["max_error"], lang))
    return "\n".join([*lines, words["book"].format(record["book"])])
