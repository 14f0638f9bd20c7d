"""Is a head used? Silence it, let the rest of the model go on, and look at the loss.

    edit = silence([(5, 3)])                                     # zero: layer 6 head 4 adds nothing
    edit = silence([(5, 3)], means=mean_outputs(traces))         # mean: it adds what it adds on average
    edit = silence([(5, 3)], patterns=trace)                     # all maps held, its value path alone is cut
    nats = nats_of(subject, ids, edit)                           # (T,) loss of each next token and of the closing ◆

An edit is a function that rostok.attention.reference.forward applies to each named step. Nothing of the model is
changed, so there is nothing to restore. Kinds after Michel et al. 2019 (zero), Wang et al. 2022 (mean) and Olsson et
al. 2022 (pattern-preserving). Leaves out resampling from another text.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from tqdm import tqdm

from rostok.attention.heads.capture import Subject, steps_of
from rostok.attention.reference import Array, Edit, forward, losses

KINDS = ("zero", "mean", "pattern")
Head = tuple[int, int]  # layer, head; from 0


def silence(
    heads: Sequence[Head],
    means: Mapping[str, Array] | None = None,
    patterns: Mapping[str, Array] | None = None,
) -> Edit:
    """An edit that replaces the output z of some heads: by zero, or by `means` (mean_outputs) of the token's class.

    With `patterns` (a clean run's blocks.L.attn.pattern) all heads keep the maps they had: what is lost is only what
    these heads carry themselves, not what later heads would have looked at because of it.
    """
    by_step: dict[str, list[int]] = {}
    for layer, head in heads:
        by_step.setdefault(f"blocks.{layer}.attn.z", []).append(head)

    def edit(name: str, value: Array) -> Array:
        if patterns is not None and name in patterns and name.endswith("attn.pattern"):
            return patterns[name]
        if name not in by_step:
            return value
        value = value.copy()  # (H, T, E)
        classes = np.minimum(np.arange(value.shape[1]), 2)
        for head in by_step[name]:
            value[head] = 0 if means is None else means[name][head, classes]
        return value

    return edit


def mean_outputs(traces: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The mean z of each head for t = 0, t = 1 and t >= 2 over several texts: name -> (H, 3, E).

    The classes are kept apart because ◆ and the token after it are unlike all others (Wang et al. 2022).
    """
    means = {}
    for name in (name for name in traces[0] if name.endswith("attn.z")):
        parts = [[trace[name][:, cut] for trace in traces] for cut in (slice(1), slice(1, 2), slice(2, None))]
        means[name] = np.stack([np.concatenate(part, axis=1).mean(1) for part in parts], axis=1)
    return means


def forbid(key: int, since: int) -> Edit:
    """An edit that closes one key to all queries from `since` on, in all heads; the rest of each row grows to 1."""

    def edit(name: str, value: Array) -> Array:
        if not name.endswith("attn.pattern"):
            return value
        value = value.copy()  # (H, T, T)
        value[:, since:, key] = 0
        return value / np.maximum(value.sum(-1, keepdims=True), 1e-30)

    return edit


def nats_of(subject: Subject, ids: Array, edit: Edit | None = None) -> Array:
    """(T,) loss of ids[1:] and of the ◆ that closes the text, nats, given ids (T,) up to each of them."""
    targets = np.append(ids[1:], subject.tokenizer.start_id)
    return losses(forward(subject.weights, subject.config, ids, edit=edit), targets)


def all_heads(subject: Subject) -> list[Head]:
    return [(layer, head) for layer in range(subject.n_layer) for head in range(subject.n_head)]


def changes(subject: Subject, texts: Sequence[Array], groups: Sequence[Sequence[Head]], kind: str) -> Array:
    """(groups, targets): loss with a group of heads silenced minus loss without, of every target of the texts.

    `kind` is zero, mean or pattern. Costs one forward pass a group and text.
    """
    means = None
    if kind == "mean":
        means = mean_outputs([steps_of(subject, ids, "attn.z") for ids in texts])
    parts = []
    for ids in tqdm(texts, desc=f"{kind} ablation", unit="text", disable=None, leave=False):
        maps = steps_of(subject, ids, "attn.pattern") if kind == "pattern" else None
        clean = nats_of(subject, ids)
        parts.append(
            np.stack([nats_of(subject, ids, silence(heads, means, maps)) - clean for heads in groups])
        )
    return np.concatenate(parts, axis=1)
