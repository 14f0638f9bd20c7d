"""Where one model's gain over another comes from: from how far back it looks, and from which tokens.

    sample = sample_texts(targets, 5000)                           # whole texts, drawn once with a fixed seed
    losses = narrow(model, targets, full, indices, width=8)           # the same model, shown 8 tokens a target
    classes(targets)                                                 # new, seen, pair, punctuation, end
    swapped = control_losses(model, plan)                            # the same tokens after another text's beginning

The classes and their frequency-matched control follow Olsson et al. 2022 and docs/perplexity.md.
Shapes: N targets of a list, S indices in it, W tokens shown, T time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from rostok.measuring.classes import CLASSES, is_punctuation
from rostok.measuring.intervals import mean_interval, resampling_units
from rostok.measuring.score import device_of, nats_of
from rostok.measuring.targets import Entry, Losses, TargetList

KEPT = 8  # own tokens before every target that the control never swaps: what the window MLP sees
# Tokens in one forward pass of narrow windows. A constant: losses must not depend on a user's choice.
TILE = 4096


def sample_texts(targets: TargetList, wanted: int, seed: int = 0) -> list[int]:
    """Whole texts, drawn with the seed until they hold `wanted` targets; all texts if they hold fewer."""
    lengths = np.diff(targets.offsets)
    if lengths.sum() <= wanted:
        return list(range(targets.n_texts))
    order = np.random.default_rng(seed).permutation(targets.n_texts)
    enough = int(np.searchsorted(np.cumsum(lengths[order]), wanted)) + 1
    return sorted(order[:enough].tolist())


# 1. The same model, shown less


def narrow(
    model: Any,
    targets: TargetList,
    full: Losses,
    indices: np.ndarray,
    width: int,
    opened: bool,
    name: str = "",
) -> Losses:
    """Losses at indices (S,) of a model that sees only the `width` tokens before each target, after ◆ if `opened`.

    Where the text's whole beginning fits into the window, the model saw the same in `full`: that loss is taken over.
    """
    # Tokens before the target. ◆ counts only if it is the text's own.
    before = targets.position[indices] - int(opened)
    fits = before <= width
    nats, hits = full.nats[indices].copy(), full.hits[indices].copy()
    asked = np.flatnonzero(~fits)
    device = device_of(model)
    tile = max(1, TILE // (width + int(opened)))
    starts = tqdm(range(0, len(asked), tile), desc=name, unit="tile", disable=None, leave=False)
    with torch.inference_mode(), last_position_only(model):
        for start in starts:
            part = asked[start : start + tile]
            ends = indices[part]
            ids = targets.inputs[ends[:, None] + np.arange(1 - width, 1)]  # (B, W), of the target's own text
            if opened:
                ids = np.concatenate((np.full((len(ids), 1), targets.start_id), ids), axis=1)
            logits = model(torch.from_numpy(ids).to(device))[:, -1]  # (B, V)
            one_nats, one_hits = nats_of(logits, torch.from_numpy(targets.targets[ends]).to(device))
            nats[part], hits[part] = one_nats.cpu(), one_hits.cpu()
    return Losses(nats, hits)


@contextmanager
def last_position_only(model: Any) -> Iterator[None]:
    """Inside, a GPT answers for the last position alone: the head, its costliest matrix here, is spared the others."""
    norm = getattr(model, "final_norm", None)
    hook = norm.register_forward_hook(lambda _module, _inputs, x: x[:, -1:]) if norm is not None else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


def is_window(model: Any) -> bool:
    return model.config.kind == "window-mlp"


def sees(model: Any) -> int:
    """How many tokens a model may look back at."""
    return model.config.window if is_window(model) else model.config.context


def shown_less(
    models: Sequence[Any], rows: Sequence[Entry], chosen: Sequence[int], width: int
) -> tuple[list[Entry], list[dict[str, Any]]]:
    """Every GPT again, on chosen texts, shown only `width` tokens before each target: bare, and after ◆.

    Second, for each window model that sees as much: how its distance to the GPT splits (see `split_gain`).
    """
    targets = rows[0].targets
    indices = targets.indices(chosen)
    part = targets if len(chosen) == targets.n_texts else targets.subset(chosen)
    windows = [
        row.at(indices, part)
        for m, row in zip(models, rows, strict=True)
        if is_window(m) and sees(m) == width
    ]
    less, split = [], []
    for model, row in zip(models, rows, strict=True):
        if is_window(model) or row.context <= width:
            continue
        for opened in (False, True):
            name = f"{row.name}, ◆ and {width}" if opened else f"{row.name}, only {width}"
            losses = narrow(model, targets, row.losses, indices, width, opened, name)
            less.append(Entry(name, width, part, losses))
            split += [split_gain(window, less[-1], row.at(indices, part), width) for window in windows]
    return less, split


def split_gain(window: Entry, less: Entry, full: Entry, width: int) -> dict[str, Any]:
    """Window model to GPT in two steps: the architecture's (as few tokens shown) and the context's (all of them)."""
    units = resampling_units(full.targets)

    def step(old: Entry, new: Entry) -> dict[str, Any]:
        change = new.losses.nats - old.losses.nats
        return {"nats": float(change.mean()), "interval": mean_interval(change, units)}

    names = {"window": window.name, "narrow": less.name, "gpt": full.name, "width": width}
    return names | {"architecture": step(window, less), "context": step(less, full)}


def sweep(models: Sequence[Any], rows: Sequence[Entry], wanted: int) -> dict[str, Any]:
    """Loss of the same sampled targets against the number of tokens a model is shown; ◆ is one of them."""
    targets = rows[0].targets
    n = min(wanted, len(targets))
    indices = np.sort(np.random.default_rng(0).choice(len(targets), n, replace=False))
    curves = []
    for model, row in zip(models, rows, strict=True):
        points = []
        for width in [row.context] if is_window(model) else sweep_widths(row.context):
            losses = row.losses.take(indices)
            if not is_window(model):
                losses = narrow(model, targets, row.losses, indices, width - 1, True, f"{row.name}, {width}")
            bounds = mean_interval(losses.nats, targets.text_of[indices])
            points.append({"shown": width, "nats": float(losses.nats.mean()), "interval": bounds})
        curves.append({"name": row.name, "points": points})
    return {"targets": n, "curves": curves}


def sweep_widths(context: int) -> list[int]:
    """8, 16, 32, ... and the context itself.

    >>> sweep_widths(100)
    [8, 16, 32, 64, 100]
    """
    widths = [8 << k for k in range(32) if 8 << k < context]
    return [*widths, context]


# 2. Where in the text


def position_bins(longest: int) -> np.ndarray:
    """First positions of the bins of a loss-by-position curve: 1 to 8 one by one, then wider by the root of two."""
    edges = list(range(1, 10))
    while edges[-1] * 2**0.5 < longest:
        edges.append(int(np.ceil(edges[-1] * 2**0.5)))
    return np.array([edge for edge in edges if edge <= max(1, longest)])


def by_position(targets: TargetList, losses: Sequence[Losses], bins: np.ndarray) -> list[dict[str, Any]]:
    """Mean nats of each row in each bin of positions, closing ◆ left out: a list of {first, last, targets, nats}."""
    own = ~targets.ends
    which = np.searchsorted(bins, targets.position[own], side="right") - 1
    counts = np.bincount(which, minlength=len(bins))
    sums = [np.bincount(which, row.nats[own], minlength=len(bins)) for row in losses]
    lasts = [*(bins[1:] - 1).tolist(), int(targets.position.max())]
    return [
        {
            "first": int(first),
            "last": last,
            "targets": int(n),
            "nats": [float(total[i] / n) for total in sums],
        }
        for i, (first, last, n) in enumerate(zip(bins, lasts, counts, strict=True))
        if n
    ]


# 3. The same tokens after another beginning


@dataclass(frozen=True)
class ControlText:
    """One text with its first part swapped: ids (T,) for the model; indices (S,) in the list of the targets that are
    scored, positions (S,) of the model's answers to them, kinds (S,) index into CLASSES.
    """

    ids: np.ndarray
    indices: np.ndarray
    positions: np.ndarray
    kinds: np.ndarray


def control_plan(targets: TargetList, chosen: Sequence[int], context: int) -> list[ControlText]:
    """Swap the first half of each chosen text for another's; score the targets KEPT or more tokens after the cut.

    A target is `seen` or `pair` here when the swap takes away its only earlier occurrences, `new` when there were none.
    Those that come again between the cut and the target keep a source to copy from, and are left out.
    """
    plain, plan = is_punctuation(targets.token_bytes), []
    lengths = np.minimum(np.diff(targets.offsets), context)
    for i in chosen:
        length = int(lengths[i])
        cut = length // 2
        donor = next(
            (
                j % targets.n_texts
                for j in range(i + 1, i + targets.n_texts)
                if lengths[j % targets.n_texts] >= cut
            ),
            None,
        )
        if cut < KEPT or donor is None:
            continue
        own = targets.text(i)[:length]
        kinds = kinds_after_cut(own, targets.targets[targets.offsets[i] :][:length], cut, plain)
        positions = np.flatnonzero(kinds >= 0)
        if len(positions):
            ids = np.concatenate((targets.text(donor)[:cut], own[cut:]))
            plan.append(ControlText(ids, targets.offsets[i] + positions, positions, kinds[positions]))
    return plan


def kinds_after_cut(own: np.ndarray, words: np.ndarray, cut: int, plain: Sequence[bool]) -> np.ndarray:
    """(T,) class of each target of one text by what came before the cut; -1 for those left out."""
    inputs, targets = own.tolist(), words.tolist()
    gone_words, gone_pairs = (
        set(targets[: cut - 1]),
        set(zip(inputs[: cut - 1], targets[: cut - 1], strict=True)),
    )
    kinds = np.full(len(inputs), -1)
    kept_words: set[int] = set(inputs[cut : cut + 1])
    kept_pairs: set[tuple[int, int]] = set()
    for t in range(cut, len(inputs)):
        last, word = inputs[t], targets[t]
        if t - cut + 1 >= KEPT and not plain[word] and word != inputs[0]:
            if (last, word) in gone_pairs and (last, word) not in kept_pairs:
                kinds[t] = 2
            elif word in gone_words and word not in kept_words:
                kinds[t] = 1
            elif word not in gone_words and word not in kept_words:
                kinds[t] = 0
        kept_words.add(word)
        kept_pairs.add((last, word))
    return kinds


@torch.inference_mode()
def control_losses(
    model: Any, targets: TargetList, plan: Sequence[ControlText], name: str = ""
) -> np.ndarray:
    """Nats of every planned target after the swapped beginning, one text after another."""
    device, parts = device_of(model), [np.zeros(0)]
    for text in tqdm(plan, desc=name, unit="text", disable=None, leave=False):
        logits = model(torch.from_numpy(text.ids)[None].to(device))[0, torch.from_numpy(text.positions)]
        wanted = torch.from_numpy(targets.targets[text.indices]).to(device)
        parts.append(nats_of(logits, wanted)[0].cpu().numpy())
    return np.concatenate(parts)


def control(models: Sequence[Any], rows: Sequence[Entry], chosen: Sequence[int]) -> list[dict[str, Any]]:
    """Gain (control - actual, nats) by class of every row: what the text's own beginning was worth."""
    targets = rows[0].targets
    plan = control_plan(targets, chosen, min(model.config.context for model in models))
    if not plan:
        return []
    indices, kinds = (np.concatenate([getattr(text, key) for text in plan]) for key in ("indices", "kinds"))
    result = [
        {"class": name, "targets": int((kinds == k).sum()), "rows": []} for k, name in enumerate(CLASSES[:3])
    ]
    for model, row in zip(models, rows, strict=True):
        swapped, actual = control_losses(model, targets, plan, row.name), row.losses.nats[indices]
        for kind, entry in enumerate(result):
            mine = kinds == kind
            gain = (swapped - actual)[mine]
            means = [float(x.mean()) if mine.any() else None for x in (actual[mine], swapped[mine], gain)]
            bounds = mean_interval(gain, targets.text_of[indices][mine])
            entry["rows"].append(
                {
                    "name": row.name,
                    "actual": means[0],
                    "control": means[1],
                    "gain": means[2],
                    "interval": bounds,
                }
            )
    return result
