"""`attend.py heads`: the report card of every head of a trained run.

    python attend.py heads checkpoints/rostok                            # a table; held-out texts of the run's data
    python attend.py heads checkpoints/rostok --out card.png             # 48 cells; also .svg, .json, .csv
    python attend.py heads checkpoints/rostok --ablate zero              # loss without each head, with intervals
    python attend.py heads checkpoints/rostok --ablate mean --group label
    python attend.py heads checkpoints/rostok --icl 200                  # in-context-learning score

1 read held-out texts -> 2 scores on them (scores.py) -> 3 scores on repeated tokens and repeated story slices
-> 4 labels (labels.py) -> 5 ablation, ◆, the far context (usage.py) -> 6 a table, JSON, CSV or a picture (card.py).
All numbers come from the NumPy reference and its maps are verified. Layers and heads count from 1 in what people read,
from 0 in JSON and CSV. Definitions: docs/attention.md. Leaves out resampling ablation and causal scrubbing.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from rostok import __version__
from rostok.attention.heads.ablate import KINDS as ABLATIONS
from rostok.attention.heads.ablate import Head, all_heads
from rostok.attention.heads.capture import Subject, View, look, maps_of, open_subject, steps_of, verified
from rostok.attention.heads.card import table, write
from rostok.attention.heads.labels import judge, sensitivity
from rostok.attention.heads.scores import (
    Probe,
    copy_cells,
    copying,
    induction,
    number,
    positional_share,
    probes_for,
    repeated,
    rest_of_start,
    seed,
    shifts_for,
    summarize,
    text_scores,
    token_pool,
    uniform,
    weight_when_free,
)
from rostok.attention.heads.usage import add_ablation, context_score, start_tests
from rostok.attention.languages import add_language_argument
from rostok.attention.reference import Array, score_bound, split_heads
from rostok.errors import UserError
from rostok.files import check_out
from rostok.runs import data_of, texts_of
from rostok.text.shards import open_data
from rostok.text.sources import read_chunks
from rostok.text.tokenizer import Tokenizer

ENDINGS = (".png", ".svg", ".json", ".csv")
SLICES = (40, 50, 60)  # tokens of a story that are read twice
ROWS = 5  # random probes a period, as Crosbie and Shutova 2024
SINK_TEXTS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py heads`."""
    add = parser.add_argument
    add("run", metavar="RUN", help="a run folder, a step folder, RUN/latest or RUN/best")
    add_texts_arguments(parser)
    add(
        "--ablate",
        choices=(*ABLATIONS, "all"),
        help="loss without each head: its output zero, its mean, or with all maps held",
    )
    add(
        "--ablate-texts",
        type=int,
        metavar="N",
        help="texts for that; one forward pass a head and text (8)",
    )
    add(
        "--group",
        choices=("label", "layer"),
        help="also silence all heads of a label, or of a layer, together",
    )
    add(
        "--icl",
        type=int,
        metavar="N",
        help="in-context-learning score on N long texts (200 is a good number)",
    )
    add("--out", metavar="FILE", help="card.png, .svg, .json or .csv")
    add("--force", action="store_true", help="overwrite an existing file")
    add("--json", action="store_true", help="print JSON instead of a table")
    add_language_argument(parser, "printed and drawn")


def add_texts_arguments(parser: argparse.ArgumentParser) -> None:
    """The words that say which held-out texts are read."""
    parser.add_argument(
        "--data", metavar="FOLDER", help="shards to take held-out texts from (those of the run)"
    )
    parser.add_argument(
        "--texts", metavar="FILE", help="or a text file, texts divided by <|endoftext|> lines"
    )
    parser.add_argument("--texts-count", type=int, default=32, metavar="N", help="how many texts (32)")
    parser.add_argument(
        "--seed", type=seed, default=0, help="of the choice of texts and of random tokens (0)"
    )


def run(args: argparse.Namespace) -> int:
    """`attend.py heads`: measure, print, write."""
    out = check_out(args.out, ENDINGS, args.force)
    for name in ("texts_count", "ablate_texts", "icl"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1. Got {value}")
    if args.ablate_texts is not None and not (args.ablate or args.group):
        raise UserError("--ablate-texts is for --ablate and --group; give one of them too")
    subject = open_subject(args.run)
    texts = held_out(subject, args)
    card = report(subject, texts, args.seed)
    if args.ablate or args.group:
        add_ablation(
            card, subject, texts.ids[: args.ablate_texts or 8], args.ablate or "zero", args.group, args.seed
        )
    if args.icl:
        card["icl"] = context_score(subject, texts.all, args.icl)
    if out:
        write(out, card, args.lang)
    print(json.dumps(card, ensure_ascii=False, allow_nan=False) if args.json else table(card, args.lang))
    if out and not args.json:
        print(out)
    return 0


# ---- 1. texts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """Held-out texts, ids [◆, ...]: the chosen ones, cut to the context; all, uncut; how often each id comes."""

    ids: list[Array]
    all: Sequence[Array]
    counts: Array
    source: str


def held_out(subject: Subject, args: argparse.Namespace) -> Texts:
    """The texts that --texts, --data or the run's config.yaml name. Raises UserError when there are none."""
    if args.texts and args.data:
        raise UserError("give --texts FILE or --data FOLDER, one of the two")
    if args.texts:
        every, source = from_file(subject.tokenizer, Path(args.texts)), args.texts
    else:
        folder = Path(args.data) if args.data else data_of_run(subject)
        texts = texts_of(open_data(folder), "valid", subject.tokenizer)
        every, source = [np.asarray(ids, dtype=np.int64) for ids in texts], str(folder)
    order = np.random.default_rng(args.seed).permutation(len(every))
    chosen = [every[i][: subject.context] for i in order if len(every[i]) > 8][: args.texts_count]
    if not chosen:
        raise UserError(
            f"not enough tokens: no text of {source} has more than 8; name others with --data or --texts"
        )
    size = subject.config["vocab_size"]
    counts = sum((np.bincount(ids, minlength=size) for ids in every[:2000]), np.zeros(size, np.int64))
    return Texts(chosen, every, counts, source)


def data_of_run(subject: Subject) -> Path:
    """The shards that a run was trained on. Raises UserError when they are not there."""
    if subject.run is None:
        raise UserError(f"{subject.name} was not opened from a folder; give --data or --texts")
    words = "--data FOLDER or --texts FILE"
    try:
        config = subject.run.config
    except UserError as error:
        raise UserError(f"{error}; name the texts with {words}") from None
    return data_of(subject.run.folder, config, words)


def from_file(tokenizer: Tokenizer, path: Path) -> list[Array]:
    """The texts of a file, divided by lines of <|endoftext|>."""
    whole, parts = [], []
    for part, last in read_chunks(path):
        parts.append(part)
        if last:
            whole.append("".join(parts))
            parts = []
    return encoded(tokenizer, whole)


def encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Array]:
    return [np.array([tokenizer.start_id, *ids]) for ids in tokenizer.encode_batch(texts)]


# ---- 2. to 4. scores and verdicts --------------------------------------------------------------------------


@dataclass
class Measured:
    """What was gathered text by text: score -> values (L, H) of each text, and of even attention."""

    values: dict[str, list[Array]] = field(default_factory=dict)
    even: dict[str, list[Array]] = field(default_factory=dict)
    largest: Array | None = None  # (L, H) largest |score| that was seen
    error: float = 0.0

    def add(self, scores: Mapping[str, Array], even: Mapping[str, Array]) -> None:
        for name, value in scores.items():
            self.values.setdefault(name, []).append(value)
        for name, value in even.items():
            self.even.setdefault(name, []).append(value)


def report(subject: Subject, texts: Texts, chosen: int = 0) -> dict[str, Any]:
    """The report card: one record a head, with what was measured on which texts. Raises UserError for NaN weights."""
    start_id, rng = subject.tokenizer.start_id, np.random.default_rng(chosen)
    measured, examples = Measured(), {}
    for which, ids in enumerate(tqdm(texts.ids, desc="texts", unit="text", disable=None, leave=False)):
        view = look(subject, ids)
        measured.add(*on_text(view, start_id))
        note_extremes(measured, view, which, examples)
    probes = probes_for(subject.context, token_pool(subject.tokenizer, texts.counts), start_id, rng, ROWS)
    random = shift_scan(subject, probes)
    stories = story_probes(subject, texts.ids, rng)
    story = shift_scan(subject, stories) if stories else None
    measured.values["copy"] = copy_scores(subject, token_pool(subject.tokenizer, texts.counts), rng)
    heads = [record(subject, where, measured, random, story, examples) for where in all_heads(subject)]
    used = judge(subject, heads, texts.ids[:SINK_TEXTS])
    return {
        "format": "rostok-heads", "version": 1, "created_with": __version__,
        "model": {"name": subject.name, **dict(subject.config)},
        "texts": {"source": texts.source, "n": len(texts.ids), "tokens": sum(map(len, texts.ids)), "seed": chosen},
        "probes": {"random": random.names, "story": story.names if story else []},
        "checks": {"max_error": measured.error, "verified": verified(measured.error, "en")},
        "heads": heads,
        "shifted_induction_pair_nats": number(used),
        "sensitivity": sensitivity(heads, used),
        "start": start_tests(subject, texts.ids[:SINK_TEXTS], rng),
    }  # fmt: skip


def on_text(view: View, start_id: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """The scores of one text, (L, H) each, and those of even attention, () each."""
    scores = text_scores(view.maps, view.ids, start_id)
    layers = range(view.subject.n_layer)
    scaled = np.stack([view.trace[f"blocks.{layer}.attn.scaled"] for layer in layers])
    scores["posr2"] = positional_share(scaled)
    ratio, share = zip(*(start_of(view, layer) for layer in layers), strict=True)
    scores |= {"start_norm": np.stack(ratio), "start_written": np.stack(share)}
    return scores, text_scores(uniform(len(view.ids)), view.ids, start_id)


def start_of(view: View, layer: int) -> tuple[Array, Array]:
    subject, trace, name = view.subject, view.trace, f"blocks.{layer}.attn"
    values, proj = values_and_proj(subject, trace[f"{name}.v"], layer)
    return rest_of_start(trace[f"{name}.pattern"], values, proj)


def values_and_proj(subject: Subject, v: Array, layer: int) -> tuple[Array, Array]:
    """v (G, T, E) -> one for each head (H, T, E), and the slices of W_O (H, D, E)."""
    proj = split_heads(subject.weights[f"blocks.{layer}.attn.proj.weight"], subject.n_head)
    return np.repeat(v, subject.n_head // len(v), axis=0), proj


def note_extremes(measured: Measured, view: View, which: int, examples: dict[Head, dict[str, Any]]) -> None:
    """Keep the largest score and the strongest look at a token that is neither ◆ nor the query itself."""
    layers = range(view.subject.n_layer)
    length = len(view.ids)
    below = np.tri(length, dtype=bool)
    largest = np.stack(
        [np.abs(view.trace[f"blocks.{layer}.attn.scaled"][:, below]).max(-1) for layer in layers]
    )
    measured.largest = largest if measured.largest is None else np.maximum(measured.largest, largest)
    measured.error = max(measured.error, view.checks.row_sums, view.checks.sdpa)
    real = np.tri(length, k=-1, dtype=bool)
    real[:, 0] = False
    for layer, head in all_heads(view.subject):
        weights = np.where(real, view.maps[layer, head], 0)
        t, j = np.unravel_index(int(weights.argmax()), weights.shape)
        if weights[t, j] > examples.get((layer, head), {"weight": 0.0})["weight"]:
            words = {"query_piece": view.pieces[t], "key_piece": view.pieces[j]}
            where = {"text": which, "query": int(t), "key": int(j), "weight": float(weights[t, j])}
            examples[layer, head] = where | words


@dataclass(frozen=True)
class ShiftScan:
    """IND_k of all heads on probes of several names."""

    names: list[str]  # such as "25x4"; "25x4 filler" has other tokens between the copies
    means: Array  # (names, shifts, L, H)
    lowest: Array  # (shifts, L, H) the minimum of the means over names
    spread: Array  # (shifts, L, H) standard deviation over probes
    even: Array  # (shifts,) what even attention scores, the highest over names
    works: Array  # (shifts, L, H) the mean over the queries that give ◆ less than half
    free: Array  # (shifts, L, H) the share of such queries
    n: int  # probes

    def best(self, layer: int, head: int) -> int:
        """k*: the shift >= 1 with the highest lowest score."""
        return 1 + int(np.nanargmax(np.nan_to_num(self.lowest[1:, layer, head], nan=-1)))


def shift_scan(subject: Subject, probes: Sequence[Probe]) -> ShiftScan:
    """Score all heads on all probes; the minimum over their names is what counts (a fixed distance is no induction)."""
    start_id, shifts = subject.tokenizer.start_id, shifts_for(probes)
    names = list(dict.fromkeys(probe.name for probe in probes))
    rows: dict[str, list[Array]] = {name: [] for name in names}
    even: dict[str, list[Array]] = {name: [] for name in names}
    works, free = [], []
    for probe in tqdm(probes, desc="repeats", unit="probe", disable=None, leave=False):
        maps = maps_of(subject, probe.ids)
        rows[probe.name].append(induction(maps, probe.ids, probe.asked, shifts, start_id))
        even[probe.name].append(induction(uniform(len(probe.ids)), probe.ids, probe.asked, shifts, start_id))
        cells = [copy_cells(probe.ids, k, start_id) for k in range(shifts)]
        parts = [weight_when_free(maps, where, probe.asked) for where in cells]
        works.append(np.stack([part[0] for part in parts]))
        free.append(np.stack([part[1] for part in parts]))
    means = np.stack([summarize(rows[name])[0] for name in names])  # (names, shifts, L, H)
    base = np.stack([summarize(even[name])[0] for name in names]).max(0)
    spread = summarize([row for name in names for row in rows[name]])[1]
    return ShiftScan(
        names, means, means.min(0), spread, base, summarize(works)[0], summarize(free)[0], len(probes)
    )


def story_probes(subject: Subject, texts: Sequence[Array], rng: np.random.Generator) -> list[Probe]:
    """◆, a slice of a text and the same slice again, in three lengths; fewer where texts or context are short."""
    room = (subject.context - 1) // 2
    probes = []
    for length in SLICES if room >= SLICES[-1] else (room - 2, room - 1, room):
        long = [ids for ids in texts if len(ids) > length]
        for ids in long[:ROWS]:
            begin = int(rng.integers(1, len(ids) - length + 1))
            part = ids[begin : begin + length]
            asked = np.arange(1 + 2 * length) > length
            probes.append(Probe(np.concatenate((ids[:1], part, part)), asked, f"{length}x2"))
    return probes


def copy_scores(subject: Subject, pool: Array, rng: np.random.Generator) -> list[Array]:
    """COPY (L, H) on a few rows of 25 different random tokens."""
    w = subject.weights
    unembed = w.get("head.weight", w["embed.weight"]) * w["final_norm.weight"]
    length, rows = min(25, len(pool), subject.context - 1), []
    for _ in range(ROWS):
        ids = repeated(pool, length, 1, rng, subject.tokenizer.start_id).ids
        trace = steps_of(subject, ids, "attn.v")
        per_layer = []
        for layer in range(subject.n_layer):
            values, proj = values_and_proj(subject, trace[f"blocks.{layer}.attn.v"], layer)
            per_layer.append(copying(values[:, 1:], proj, unembed, ids[1:]))
        rows.append(np.stack(per_layer))
    return rows


def record(
    subject: Subject,
    where: Head,
    measured: Measured,
    random: ShiftScan,
    story: ShiftScan | None,
    examples: Mapping[Head, dict[str, Any]],
) -> dict[str, Any]:
    """One head's line of the card, without its labels."""
    layer, head = where
    scores: dict[str, Any] = {}
    for name, values in measured.values.items():
        mean, spread, n = (part[where] for part in summarize(values))
        base = summarize(measured.even[name])[0] if name in measured.even else np.nan
        scores[name] = {"v": number(mean), "base": number(base), "sd": number(spread), "n": int(n)}
    for name, scan in (("ind", random), ("ind_story", story)):
        if scan is not None:
            scores[name] = of_scan(scan, layer, head)
    weights = subject.weights
    gains = (weights[f"blocks.{layer}.attn.{part}_norm.weight"] for part in "qk")
    largest = measured.largest[where] if measured.largest is not None else np.nan
    return {
        "layer": layer, "head": head, "labels": [], "scores": scores,
        "score_bound": number(score_bound(*gains)), "score_max": number(largest),
        "example": examples.get(where),
    }  # fmt: skip


def of_scan(scan: ShiftScan, layer: int, head: int) -> dict[str, Any]:
    k = scan.best(layer, head)
    return {
        "v": number(scan.lowest[k, layer, head]), "base": number(scan.even[k]),
        "sd": number(scan.spread[k, layer, head]), "n": scan.n, "k": k,
        "shifts": [number(x) for x in scan.lowest[:, layer, head]],
        "by_period": {name: number(x) for name, x in zip(scan.names, scan.means[:, k, layer, head], strict=True)},
        "when_free": number(scan.works[k, layer, head]), "free": number(scan.free[k, layer, head]),
    }  # fmt: skip
