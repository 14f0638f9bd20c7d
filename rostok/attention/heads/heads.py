"""`attend.py heads`: the report card of every head of a trained run.

    python attend.py heads checkpoints/rostok                            # a table; held-out texts of the run's data
    python attend.py heads checkpoints/rostok --out card.png             # 48 cells; also .svg, .json, .csv
    python attend.py heads checkpoints/rostok --ablate zero              # loss without each head, with intervals
    python attend.py heads checkpoints/rostok --ablate mean --group label
    python attend.py heads checkpoints/rostok --icl 200                  # in-context-learning score

1 read held-out texts -> 2 scores on them (scores.py) -> 3 scores on repeated tokens and repeated story slices
-> 4 verdicts -> 5 is ◆ a sink? -> 6 ablation (ablate.py) -> 7 a table, JSON, CSV or a picture (card.py).
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
from rostok.attention.heads.ablate import Place, all_heads, changes, forbid, nats_of
from rostok.attention.heads.capture import Subject, View, look, open_subject
from rostok.attention.heads.card import best_scan, table, verified, write
from rostok.attention.heads.maps import check_out
from rostok.attention.heads.scores import (
    KINDS,
    STRONG,
    Probe,
    copy_cells,
    copying,
    induction,
    positional_share,
    probes_for,
    repeated,
    rest_of_start,
    shifts_for,
    summarize,
    text_scores,
    token_pool,
    uniform,
    verdicts,
    weight_when_free,
)
from rostok.attention.reference import Array, forward, score_bound, split_heads
from rostok.errors import UserError
from rostok.text.shards import open_data
from rostok.text.tokenizer import Tokenizer, load_tokenizer

ENDINGS = (".png", ".svg", ".json", ".csv")
SLICES = (40, 50, 60)  # tokens of a story that are read twice
ROWS = 5  # random probes a period, as Crosbie and Shutova 2024
SINK_TEXTS, EVICT_FROM = 8, 16
POSITIONAL = 0.8  # a head whose scores the distance explains so well is no induction head
THRESHOLDS = (0.3, 0.4, 0.5)


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
        default=8,
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
    add("--lang", choices=("en", "ru"), default="en", help="the language of what is printed and drawn (en)")


def add_texts_arguments(parser: argparse.ArgumentParser) -> None:
    """The words that say which held-out texts are read."""
    parser.add_argument(
        "--data", metavar="FOLDER", help="shards to take held-out texts from (those of the run)"
    )
    parser.add_argument(
        "--texts", metavar="FILE", help="or a text file, texts divided by <|endoftext|> lines"
    )
    parser.add_argument("--texts-count", type=int, default=32, metavar="N", help="how many texts (32)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of texts and of random tokens (0)")


def run(args: argparse.Namespace) -> int:
    """`attend.py heads`: measure, print, write."""
    out = check_out(args.out, ENDINGS, args.force)
    for name in ("texts_count", "ablate_texts", "icl"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1. Got {value}")
    subject = open_subject(args.run)
    texts = held_out(subject, args)
    card = report(subject, texts, args.seed)
    if args.ablate or args.group:
        add_ablation(
            card, subject, texts.ids[: args.ablate_texts], args.ablate or "zero", args.group, args.seed
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
        folder = Path(args.data) if args.data else data_of(subject)
        every, source = from_shards(subject.tokenizer, folder), str(folder)
    order = np.random.default_rng(args.seed).permutation(len(every))
    chosen = [every[i][: subject.context] for i in order if len(every[i]) > 8][: args.texts_count]
    if not chosen:
        raise UserError(
            f"not enough tokens: no text of {source} has more than 8; name others with --data or --texts"
        )
    size = subject.config["vocab_size"]
    counts = sum((np.bincount(ids, minlength=size) for ids in every[:2000]), np.zeros(size, np.int64))
    return Texts(chosen, every, counts, source)


def data_of(subject: Subject) -> Path:
    """The folder of shards that a run was trained on. Raises UserError when it is not there."""
    import yaml

    try:
        config = yaml.safe_load((subject.folder / "config.yaml").read_text("utf-8"))
        folder = Path(config["data"]["path"])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        raise UserError(
            f"{subject.folder} does not say what it was trained on; give --data or --texts"
        ) from None
    if not (folder / "manifest.json").is_file():
        raise UserError(
            f"the data of {subject.name} is not here (it was in {folder}); name shards with --data FOLDER, "
            "or a file with --texts FILE"
        )
    return folder


def from_shards(tokenizer: Tokenizer, folder: Path) -> list[Array]:
    """The held-out texts of a shards folder, encoded anew where its tokenizer is another."""
    data = open_data(folder)
    split = data.split("valid")
    texts = [np.asarray(split.text(i), dtype=np.int64) for i in range(len(split))]
    if data.tokenizer_sha256 == tokenizer.sha256:
        return texts
    own = load_tokenizer(folder)
    return encoded(tokenizer, [own.decode(ids[1:].tolist()) for ids in texts])


def from_file(tokenizer: Tokenizer, path: Path) -> list[Array]:
    """The texts of a file, divided by lines of <|endoftext|>."""
    from rostok.text.sources import read_chunks

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


def report(subject: Subject, texts: Texts, seed: int = 0) -> dict[str, Any]:
    """The report card: one record a head, with what was measured on which texts. Raises UserError for NaN weights."""
    start_id, rng = subject.tokenizer.start_id, np.random.default_rng(seed)
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
    heads = [record(subject, place, measured, random, story, examples) for place in all_heads(subject)]
    used = judge(subject, heads, texts.ids[:SINK_TEXTS])
    return {
        "format": "rostok-heads", "version": 1, "created_with": __version__,
        "model": {"name": subject.name, **dict(subject.config)},
        "texts": {"source": texts.source, "n": len(texts.ids), "tokens": sum(map(len, texts.ids)), "seed": seed},
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


def note_extremes(measured: Measured, view: View, which: int, examples: dict[Place, dict[str, Any]]) -> None:
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
    """IND_k of all heads on probes of several names.

    means (names, shifts, L, H) and the lowest of them over names (shifts, L, H); spread over probes; even attention's
    highest (shifts,); works (shifts, L, H): the mean over the queries that give ◆ less than half, free: their share.
    """

    names: list[str]
    means: Array
    lowest: Array
    spread: Array
    even: Array
    works: Array
    free: Array
    n: int

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


def maps_of(subject: Subject, ids: Array) -> Array:
    """(L, H, T, T)"""
    trace: dict[str, Array] = {}
    forward(subject.weights, subject.config, ids, trace, keep=lambda name: name.endswith("attn.pattern"))
    return np.stack(list(trace.values()))


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
        trace: dict[str, Array] = {}
        forward(w, subject.config, ids, trace, keep=lambda name: name.endswith("attn.v"))
        per_layer = []
        for layer in range(subject.n_layer):
            values, proj = values_and_proj(subject, trace[f"blocks.{layer}.attn.v"], layer)
            per_layer.append(copying(values[:, 1:], proj, unembed, ids[1:]))
        rows.append(np.stack(per_layer))
    return rows


def record(
    subject: Subject,
    place: Place,
    measured: Measured,
    random: ShiftScan,
    story: ShiftScan | None,
    examples: Mapping[Place, dict[str, Any]],
) -> dict[str, Any]:
    """One head's line of the card, without its labels."""
    layer, head = place
    scores: dict[str, Any] = {}
    for name, values in measured.values.items():
        mean, spread, n = (part[place] for part in summarize(values))
        base = summarize(measured.even[name])[0] if name in measured.even else np.nan
        scores[name] = {"v": number(mean), "base": number(base), "sd": number(spread), "n": int(n)}
    for name, scan in (("ind", random), ("ind_story", story)):
        if scan is not None:
            scores[name] = of_scan(scan, layer, head)
    weights = subject.weights
    gains = (weights[f"blocks.{layer}.attn.{part}_norm.weight"] for part in "qk")
    largest = measured.largest[place] if measured.largest is not None else np.nan
    return {
        "layer": layer, "head": head, "labels": [], "scores": scores,
        "score_bound": number(score_bound(*gains)), "score_max": number(largest),
        "example": examples.get(place),
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


def number(x: Any) -> float | None:
    """A number for JSON, six significant digits; None for NaN."""
    return None if x is None or np.isnan(x) else float(f"{float(x):.6g}")


def judge(subject: Subject, heads: Sequence[dict[str, Any]], texts: Sequence[Array]) -> float | None:
    """Write the labels. Induction needs more than maps: copying for shift 1, use on repeated pairs for others.

    Gives that use: how much the loss on repeated pairs grows without all heads that match with another shift.
    """
    shifted = [
        (head["layer"], head["head"])
        for head in heads
        if looks_like_induction(head) and best_scan(head)["k"] > 1
    ]
    used = pair_loss(subject, texts, shifted) if shifted else None
    for head in heads:
        head["labels"] = labels_of(head, used)
    return used


def looks_like_induction(head: Mapping[str, Any], least: float = STRONG[0]) -> bool:
    scan, posr2 = best_scan(head), head["scores"]["posr2"]["v"]
    matches = bool(verdicts({"ind": (scan["v"], scan["base"])}, least))
    return matches and not (posr2 is not None and posr2 > POSITIONAL)


def labels_of(head: Mapping[str, Any], used: float | None, least: float = STRONG[0]) -> list[dict[str, Any]]:
    """The labels of one head, at most two; `used` is what judge gives."""
    scores, scan = head["scores"], best_scan(head)
    known = {
        name: (scores[name]["v"], scores[name]["base"] or 0.0) for name in KINDS.values() if name != "ind"
    }
    copies = scores["copy"]["v"] if scan["k"] == 1 else used
    if (copies or 0.0) > 0 and looks_like_induction(head, least):
        known["ind"] = (scan["v"], scan["base"])
    labels = verdicts(known, least)
    for label in labels:
        if label["kind"] == "induction":
            label |= {"shift": scan["k"], "on": scan["on"]}
    return labels


def pair_loss(subject: Subject, texts: Sequence[Array], heads: Sequence[Place]) -> float:
    """How much the loss on repeated pairs grows, nats, when these heads add nothing."""
    pairs = target_kinds(subject, texts) == "pair"
    return float(changes(subject, texts, [heads], "zero")[0, pairs].mean()) if pairs.any() else 0.0


def target_kinds(subject: Subject, texts: Sequence[Array]) -> Array:
    """(N,) new, seen, pair, punctuation or end: of each target of the texts (rostok.measuring.classes)."""
    from rostok.measuring.classes import CLASSES, classes
    from rostok.measuring.targets import target_list

    tokenizer = subject.tokenizer
    pieces = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    return np.array(CLASSES)[classes(target_list(texts, tokenizer.start_id, pieces))]


def sensitivity(heads: Sequence[dict[str, Any]], used: float | None) -> list[dict[str, Any]]:
    """How many heads have which first label at other thresholds, and how many differ from the one that was used."""
    first = {}
    for least in THRESHOLDS:
        labels = [labels_of(head, used, least) for head in heads]
        first[least] = [found[0]["kind"] if found else "other" for found in labels]
    rows = []
    for least, kinds in first.items():
        counts = {kind: kinds.count(kind) for kind in [*KINDS, "other"] if kind in kinds}
        moved = sum(a != b for a, b in zip(kinds, first[STRONG[0]], strict=True))
        rows.append({"threshold": least, "labels": counts, "changed": moved})
    return rows


# ---- 5. is ◆ a sink? ---------------------------------------------------------------------------------------


def start_tests(subject: Subject, texts: Sequence[Array], rng: np.random.Generator) -> dict[str, Any] | None:
    """Take ◆ away from all later queries and see what that costs; put a full stop in its place and see who looks there.

    evict: loss behind token 16 when no head may look at ◆ from there on, minus the loss when it may; evict_random: the
    same for one of tokens 1 .. 15 (Xiao et al. 2023). replace: mean attention on place 0 with ◆ there, and with ".".
    """
    from rostok.measuring.intervals import mean_interval

    long = [ids for ids in texts if len(ids) > 2 * EVICT_FROM]
    if not long:
        return None
    rows: dict[str, list[Array]] = {"evict": [], "evict_random": []}
    units, parked = [], []
    stop = subject.tokenizer.encode(".")[0]
    for i, ids in enumerate(tqdm(long, desc="without ◆", unit="text", disable=None, leave=False)):
        clean = nats_of(subject, ids)
        for name, key in (("evict", 0), ("evict_random", int(rng.integers(1, EVICT_FROM)))):
            rows[name].append((nats_of(subject, ids, forbid(key, EVICT_FROM)) - clean)[EVICT_FROM:])
        units.append(np.full(len(ids) - EVICT_FROM, i))
        swapped = np.concatenate(([stop], ids[1:]))
        parked.append([maps_of(subject, x)[:, :, 2:, 0].mean() for x in (ids, swapped)])
    result: dict[str, Any] = {"texts": len(long)}
    for name, parts in rows.items():
        values = np.concatenate(parts)
        bounds = mean_interval(values, np.concatenate(units))
        result[name] = {"nats": number(values.mean()), "interval": bounds}
    with_start, with_stop = np.mean(parked, axis=0)
    return result | {"replace": {"start": number(with_start), "full_stop": number(with_stop)}}


# ---- 6. ablation and context -------------------------------------------------------------------------------


def add_ablation(
    card: dict[str, Any], subject: Subject, texts: Sequence[Array], kind: str, group: str | None, seed: int
) -> None:
    """Put into each head's record, and into card["groups"], what silencing costs; by kind, then by class of target."""
    from rostok.measuring.intervals import resampling_units
    from rostok.measuring.targets import target_list

    places, groups = all_heads(subject), head_groups(card, group, seed)
    classes = target_kinds(subject, texts)
    units = resampling_units(target_list(texts, subject.tokenizer.start_id))
    card["ablation"] = {"texts": len(texts), "targets": len(classes), "kinds": []}
    card["groups"] = [{"name": name, "heads": heads} for name, heads in groups]
    for each in ABLATIONS if kind == "all" else (kind,):
        card["ablation"]["kinds"].append(each)
        asked = [[place] for place in places] + [heads for _, heads in groups]
        deltas = changes(subject, texts, asked, each)  # (heads + groups, targets)
        for entry, values in zip([*card["heads"], *card["groups"]], deltas, strict=True):
            entry.setdefault("ablation", {})[each] = by_class(values, classes, units)


def head_groups(card: Mapping[str, Any], group: str | None, seed: int) -> list[tuple[str, list[Place]]]:
    """All heads of a layer; or all of a label, and beside them as many others at random."""
    members: dict[str, list[Place]] = {}
    for head in card["heads"]:
        kind = head["labels"][0]["kind"] if head["labels"] else "other"
        name = f"layer {head['layer'] + 1}" if group == "layer" else kind
        members.setdefault(name, []).append((head["layer"], head["head"]))
    if group == "layer":
        return list(members.items())
    rng, found = np.random.default_rng(seed), []
    everyone = [(head["layer"], head["head"]) for head in card["heads"]]
    for name, heads in members.items() if group == "label" else ():
        others = [place for place in everyone if place not in heads]
        drawn = rng.permutation(len(others))[: len(heads)]
        found += [(name, heads), (f"random, as many as {name}", [others[i] for i in drawn])]
    return [(name, heads) for name, heads in found if heads]


def by_class(values: Array, classes: Array, units: Array) -> dict[str, Any]:
    """Mean change and its 95 % interval (units are drawn) over all targets and over those new, seen and pair."""
    from rostok.measuring.intervals import mean_interval

    result = {}
    for name in ("all", "new", "seen", "pair"):
        mine = np.ones(len(values), bool) if name == "all" else classes == name
        if mine.any():
            bounds = mean_interval(values[mine], units[mine])
            result[name] = {"nats": number(values[mine].mean()), "interval": bounds, "n": int(mine.sum())}
    return result


def context_score(subject: Subject, texts: Sequence[Array], wanted: int) -> dict[str, Any]:
    """Loss around token 500 minus loss around token 50 of single texts, nats (Olsson et al. 2022); < 0: context helps.

    Where fewer than `wanted` texts are so long, the longest place that so many reach is taken. With a control: the
    late place again, only the last 32 tokens shown; what then remains is the story's end being easy, not its context.
    """
    around = 5
    lengths = np.sort([min(len(ids), subject.context) for ids in texts])[::-1]
    reach = int(lengths[min(wanted, len(lengths)) - 1])
    late = min(500, reach - around - 1)
    early = 50 if late > 100 else late // 4
    if early <= around:
        raise UserError(
            f"not enough tokens: the texts reach place {late}; give longer ones with --data or --texts"
        )
    long = [ids[: late + around + 1] for ids in texts if min(len(ids), subject.context) >= late + around + 1][
        :wanted
    ]
    losses, control = [], []
    for ids in tqdm(long, desc="context", unit="text", disable=None, leave=False):
        losses.append(nats_of(subject, ids)[:-1])  # the loss of token p stands at p - 1
        control.append(nats_of(subject, ids[late - 32 : late + 1])[-2])
    by_place = np.mean(losses, axis=0)
    means = {place: by_place[place - 1 - around : place + around].mean() for place in (early, late)}
    return {
        "score": number(means[late] - means[early]), "late": late, "early": early, "around": around, "texts": len(long),
        "late_nats": number(means[late]), "early_nats": number(means[early]),
        "late_with_32": number(np.mean(control)), "by_place": [number(x) for x in by_place],
    }  # fmt: skip
