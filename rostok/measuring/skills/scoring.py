"""Which of two continuations does a model give more probability? Nats of both, for networks and for counting models.

    pairs = encode_items(items, tokenizer)
    found = score_pairs(model, pairs, context)        # or count_pairs(ngram, pairs)
    found.right                                       # (N,) 1, 0, or 0.5 where both cost the same

Prefix and continuation are encoded as one text behind ◆ and divided after as many tokens as the prefix has alone, as
lm-evaluation-harness does. Logits are float32, sums float64. Each input is run alone, so an item's nats are a function
of the model and the item: good and bad exchanged give exactly the complement. Items longer than the context lose their
oldest tokens after ◆. Shapes: N items.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rostok.errors import UserError
from rostok.measuring.ngrams import NGram
from rostok.measuring.score import device_of, nats_of
from rostok.measuring.skills.items import Item
from rostok.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Pair:
    """The ids of both choices, ◆ first, and how many of the last ones are the continuation."""

    good: list[int]
    bad: list[int]
    n_good: int
    n_bad: int
    good_bytes: int
    bad_bytes: int

    @property
    def equal(self) -> bool:
        return self.n_good == self.n_bad


@dataclass(frozen=True)
class Found:
    """Nats of the good and of the bad continuation of every item, (N,) float64."""

    good: np.ndarray
    bad: np.ndarray

    @property
    def right(self) -> np.ndarray:
        """(N,) 1 where the good one costs less, 0 where the bad one does, 0.5 where both cost the same."""
        return np.where(self.good == self.bad, 0.5, (self.good < self.bad).astype(float))


def encode_items(items: Sequence[Item], tokenizer: Tokenizer) -> list[Pair]:
    return [encode_item(item, tokenizer) for item in items]


def encode_item(item: Item, tokenizer: Tokenizer) -> Pair:
    """Raises UserError where the prefix's last token and the continuation become one token."""
    prefix = item.prefix.rstrip()
    space = item.prefix[
        len(prefix) :
    ]  # a blank at the prefix's end belongs to the continuation's first token
    n_prefix = len(tokenizer.encode(prefix))
    texts = (prefix + space + item.good, prefix + space + item.bad)
    good, bad = ([tokenizer.start_id, *tokenizer.encode(text)] for text in texts)
    sizes = [len((space + text).encode()) for text in (item.good, item.bad)]
    n_good, n_bad = len(good) - 1 - n_prefix, len(bad) - 1 - n_prefix
    if n_good < 1 or n_bad < 1:
        raise UserError(
            f"{item.good!r} or {item.bad!r} becomes one token with the end of {item.prefix[-30:]!r}; begin the "
            "continuations earlier, at a blank"
        )
    return Pair(good, bad, n_good, n_bad, sizes[0], sizes[1])


@torch.inference_mode()
def score_pairs(model: Callable[[Tensor], Tensor], pairs: Iterable[Pair], context: int) -> Found:
    """Run a model over every pair: model(ids (1, T) int64) -> logits (1, T, V)."""
    device = device_of(model)
    good, bad = [], []
    for pair in pairs:
        logits: dict[tuple[int, ...], Tensor] = {}  # both choices of one token have the same input: run once
        for ids, count, out in ((pair.good, pair.n_good, good), (pair.bad, pair.n_bad, bad)):
            count = min(count, context)
            inputs = ids[:-1] if len(ids) - 1 <= context else [ids[0], *ids[:-1][1 - context :]]
            key = tuple(inputs)
            if key not in logits:
                logits[key] = model(torch.tensor([inputs], device=device))[0]
            wanted = torch.tensor(ids[-count:], device=device)
            out.append(float(nats_of(logits[key][-count:], wanted)[0].sum()))
    return Found(np.array(good), np.array(bad))


def count_pairs(model: NGram, pairs: Sequence[Pair], start_id: int) -> Found:
    """The same for a counting model, all items at once."""
    nats = []
    for texts in ([(p.good, p.n_good) for p in pairs], [(p.bad, p.n_bad) for p in pairs]):
        inputs = np.concatenate([np.array(ids[:-1], np.int64) for ids, _ in texts])
        words = np.concatenate([np.array(ids[1:], np.int64) for ids, _ in texts])
        lengths = np.array([len(ids) - 1 for ids, _ in texts])
        ends = np.cumsum(lengths)
        p, _ = model.predict(inputs, np.concatenate(([0], ends)), words, start_id)
        each = -np.log(p)
        nats.append(np.array([each[end - n : end].sum() for end, (_, n) in zip(ends, texts, strict=True)]))
    return Found(nats[0], nats[1])
