"""Is it used? What silencing heads costs, what ◆ is worth, and what the far context is worth: all in nats of the loss.

    add_ablation(card, subject, texts, "zero", "label", seed=0)   # into each head's record and into card["groups"]
    start_tests(subject, texts, rng)                              # without ◆; with a full stop instead
    context_score(subject, texts, wanted=200)                     # in-context-learning score

Intervals are 95 %, from a bootstrap over texts. Leaves out resampling ablation and causal scrubbing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from rostok.attention.heads.ablate import KINDS as ABLATIONS
from rostok.attention.heads.ablate import Head, all_heads, changes, forbid, nats_of
from rostok.attention.heads.capture import Subject, maps_of
from rostok.attention.heads.card import AS_MANY
from rostok.attention.heads.scores import number
from rostok.attention.reference import Array
from rostok.errors import UserError
from rostok.measuring.classes import CLASSES, classes
from rostok.measuring.intervals import mean_interval, resampling_units
from rostok.measuring.targets import target_list

EVICT_FROM = 16  # ◆ is closed to the queries from here on


# ---- silenced heads ----------------------------------------------------------------------------------------


def add_ablation(
    card: dict[str, Any], subject: Subject, texts: Sequence[Array], kind: str, group: str | None, seed: int
) -> None:
    """Put into each head's record, and into card["groups"], what silencing costs; by kind, then by class of target."""

    heads, groups = all_heads(subject), head_groups(card, group, seed)
    kinds = target_kinds(subject, texts)
    units = resampling_units(target_list(texts, subject.tokenizer.start_id))
    card["ablation"] = {"texts": len(texts), "targets": len(kinds), "kinds": []}
    card["groups"] = [{"name": name, "heads": members} for name, members in groups]
    for each in ABLATIONS if kind == "all" else (kind,):
        card["ablation"]["kinds"].append(each)
        asked = [[head] for head in heads] + [members for _, members in groups]
        deltas = changes(subject, texts, asked, each)  # (heads + groups, targets)
        for entry, values in zip([*card["heads"], *card["groups"]], deltas, strict=True):
            entry.setdefault("ablation", {})[each] = by_class(values, kinds, units)


def head_groups(card: Mapping[str, Any], group: str | None, seed: int) -> list[tuple[str, list[Head]]]:
    """All heads of a layer; or all of a label, and beside them as many others at random."""
    members: dict[str, list[Head]] = {}
    for head in card["heads"]:
        kind = head["labels"][0]["kind"] if head["labels"] else "other"
        name = f"layer {head['layer'] + 1}" if group == "layer" else kind
        members.setdefault(name, []).append((head["layer"], head["head"]))
    if group == "layer":
        return list(members.items())
    rng, found = np.random.default_rng(seed), []
    everyone = [(head["layer"], head["head"]) for head in card["heads"]]
    for name, heads in members.items() if group == "label" else ():
        others = [head for head in everyone if head not in heads]
        drawn = rng.permutation(len(others))[: len(heads)]
        found += [(name, heads), (AS_MANY + name, [others[i] for i in drawn])]
    return [(name, heads) for name, heads in found if heads]


def by_class(values: Array, kinds: Array, units: Array) -> dict[str, Any]:
    """Mean change and its 95 % interval (units are drawn) over all targets and over those new, seen and pair."""

    result = {}
    for name in ("all", "new", "seen", "pair"):
        mine = np.ones(len(values), bool) if name == "all" else kinds == name
        if mine.any():
            bounds = mean_interval(values[mine], units[mine])
            result[name] = {"nats": number(values[mine].mean()), "interval": bounds, "n": int(mine.sum())}
    return result


def pair_loss(subject: Subject, texts: Sequence[Array], heads: Sequence[Head]) -> float:
    """How much the loss on repeated pairs grows, nats, when these heads add nothing."""
    pairs = target_kinds(subject, texts) == "pair"
    return float(changes(subject, texts, [heads], "zero")[0, pairs].mean()) if pairs.any() else 0.0


def target_kinds(subject: Subject, texts: Sequence[Array]) -> Array:
    """(N,) new, seen, pair, punctuation or end: of each target of the texts (rostok.measuring.classes)."""

    tokenizer = subject.tokenizer
    spelled = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    return np.array(CLASSES)[classes(target_list(texts, tokenizer.start_id, spelled))]


# ---- ◆ and the far context ---------------------------------------------------------------------------------


def start_tests(subject: Subject, texts: Sequence[Array], rng: np.random.Generator) -> dict[str, Any] | None:
    """Take ◆ away from all later queries and see what that costs; put a full stop there and see who looks at it.

    evict: loss behind token 16 when no head may look at ◆ from there on, minus the loss when it may; evict_random: the
    same for one of tokens 1 .. 15 (Xiao et al. 2023). replace: mean attention on position 0 with ◆ there, and with ".".
    """
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


def context_score(subject: Subject, texts: Sequence[Array], wanted: int) -> dict[str, Any]:
    """Loss around token 500 minus loss around token 50 of single texts, nats (Olsson et al. 2022); < 0: context helps.

    Where fewer than `wanted` texts are so long, the last position that so many reach is taken. A control shows only
    the last 32 tokens at the late position: what then remains is that ends of stories are easy.
    """
    around = 5
    lengths = np.sort([min(len(ids), subject.context) for ids in texts])[::-1]
    reach = int(lengths[min(wanted, len(lengths)) - 1])
    late = min(500, reach - around - 1)
    early = 50 if late > 100 else late // 4
    if early <= around:
        raise UserError(
            f"not enough tokens: the texts reach position {late}; give longer ones with --data or --texts"
        )
    long = [ids[: late + around + 1] for ids in texts if min(len(ids), subject.context) >= late + around + 1][
        :wanted
    ]
    losses, control = [], []
    for ids in tqdm(long, desc="context", unit="text", disable=None, leave=False):
        losses.append(nats_of(subject, ids)[:-1])  # the loss of token p is at p - 1
        control.append(nats_of(subject, ids[late - 32 : late + 1])[-2])
    by_position = np.mean(losses, axis=0)
    means = {at: by_position[at - 1 - around : at + around].mean() for at in (early, late)}
    return {
        "score": number(means[late] - means[early]), "late": late, "early": early, "around": around, "texts": len(long),
        "late_nats": number(means[late]), "early_nats": number(means[early]),
        "late_with_32": number(np.mean(control)), "by_place": [number(x) for x in by_position],
    }  # fmt: skip
