"""`attend.py name`: an invented name comes again in a story; does the model know it the second time?

    python attend.py name checkpoints/rostok checkpoints/gpt-1
    python attend.py name checkpoints/rostok --name "Zorbin Plax" --json

A story gives a dragon an invented name and comes back to it twice. How sure is the model of each next piece of the
name the first, second and third time? One name is an anecdote, so 50 random ones follow, and controls that take the
first mention away, swap it, move it far away, or silence the heads that should do it. This is a claim of the chapter
(docs/worked-examples.md). The story is told in the language that the run's tokenizer spells best. Everything is made
from a seed. A window MLP may be asked too (it has no heads). Leaves out names within dialogue.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostok.attention.heads.ablate import Head, all_heads, silence
from rostok.attention.heads.capture import Subject, look, maps_of, open_subject
from rostok.attention.heads.probes import (
    add_common_arguments,
    mean_and_interval,
    pieces_at,
    publish,
    with_interval,
)
from rostok.attention.heads.scores import induction, number, probes_for, shifts_for, token_pool
from rostok.attention.heads.stories import note_letters, stories_of
from rostok.attention.languages import section
from rostok.attention.reference import Array, Edit, forward, softmax
from rostok.errors import UserError
from rostok.files import check_out
from rostok.text.reading import typed

FILLERS = (10, 50, 100, 200, 400)
TOP, TOKENS = 3, 40  # heads silenced; tokens put in between
MOST_NAMES = 1000

# ---- the story ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """A story as ids (T,) with the positions (mentions, K) of the pieces of the name."""

    ids: Array
    mentions: Array

    @property
    def pieces(self) -> Array:
        """(K,) the name's ids."""
        return self.ids[self.mentions[0]]


def filler(subject: Subject, tokens: int) -> str:
    """Sentences between the mentions, as many as fill `tokens` tokens, at least one."""
    sentences = stories_of(subject, "name")["filler"]
    text, i = "", 0
    while not text or len(subject.tokenizer.encode(text)) < tokens:
        text, i = text + sentences[i % len(sentences)], i + 1
    return text


def tell(subject: Subject, name: str, first: str | None = None, tokens: int = TOKENS) -> Story:
    """The story with three mentions of `name`; the first is `first` if that is given ("": there is none).

    Raises UserError where the name falls into other pieces at one mention than at another, or the story is too long.
    """
    first = name if first is None else first
    words = stories_of(subject, "name")
    opening, named = words["opening"], words["named"]
    parts = [opening + (named.format(name=f" {first}") if first else "") + filler(subject, tokens)]
    spans = [len(opening) + named.index("{name}")] if first == name else []
    for sentence in words["again"]:
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
    sets = stories_of(subject, "name")["letters"]
    for _ in range(40 * wanted):
        syllables = [
            "".join(rng.choice(list(letters)) for letters in sets) for _ in range(int(rng.integers(2, 4)))
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


# ---- attend.py name ----------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py name`."""
    add = parser.add_argument
    add("runs", metavar="RUN", nargs="+", help="one run or more: GPTs or window MLPs")
    add(
        "--name",
        metavar="NAME",
        help="an invented name of at least three pieces (Zorbin Plax, or one of the run's language)",
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


def run(args: argparse.Namespace) -> int:
    """`attend.py name`: measure each run, print a table a run, the chapter's claim beside it."""
    out = check_out(args.out, (".json",), args.force)
    if not 2 <= args.names <= MOST_NAMES:
        raise UserError(f"--names must be 2 to {MOST_NAMES}. Got {args.names}")
    subjects = [open_subject(path, ("gpt", "window-mlp")) for path in args.runs]
    room = min(subject.context for subject in subjects)
    if not 1 <= args.filler < room:
        raise UserError(f"--filler must be at least 1 and less than the context, {room}. Got {args.filler}")
    results = []
    for subject in subjects:
        words = stories_of(subject, "name")
        name = words["invented"] if args.name is None else args.name
        results.append({"name": name, **name_probe(subject, name, args.filler, args.names, args.seed)})
        note_letters(subject, words["opening"] + words["filler"][0], args.lang)
    found = {"format": "rostok-name", "name": results[0]["name"], "runs": results}
    return publish(found, name_text, out, args)


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
    words, result = stories_of(subject, "name"), {}
    for control, first in (("swapped", swapped(name, words["other_letters"])), ("no_mention", "")):
        story = tell(subject, name, first, tokens)  # its mentions are the later two
        p, _ = of_mentions(expect(subject, story.ids), story)
        result[control] = {"first": first, "p": rounded(p[0])}
    known = words["common"]
    common, absent = tell(subject, known, tokens=tokens), tell(subject, known, "", tokens)
    p_named, p_absent = (of_mentions(expect(subject, s.ids), s)[0] for s in (common, absent))
    result["common"] = {"name": known, "p": number(p_named[1, 0]), "p_not_named": number(p_absent[0, 0])}
    return result


def swapped(name: str, letters: str) -> str:
    """The name with other letters after its first: Zorbin Plax -> Zalkem Plax."""
    first, *rest = name.split(" ")
    return " ".join([first[0] + letters[: max(1, len(first) - 1)], *rest])


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


def name_text(record: Mapping[str, Any], lang: str) -> str:
    """All that `name` prints."""
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
