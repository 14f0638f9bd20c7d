"""What kind of token a target is, given the text before it: new, seen, pair, punctuation or the end of the text.

    kinds = classes(targets)                    # (N,) index into CLASSES
    by_class(targets, kinds, [losses])          # count, mean nats and mean probability of each class

The classes follow Olsson et al. 2022: a model that copies gains on `pair` and `seen`, not on `new`. NumPy only.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rostok.measuring.targets import Losses, TargetList

CLASSES = ("new", "seen", "pair", "punctuation", "end")


def repeats(inputs: Sequence[int], targets: Sequence[int]) -> list[int]:
    """For each target of one text: 0 new, 1 seen before, 2 pair (seen before after the same token).

    >>> repeats([0, 7, 8, 7], [7, 8, 7, 8])
    [0, 0, 1, 2]
    """
    seen: set[int] = set()
    pairs: set[tuple[int, int]] = set()
    kinds = []
    for last, word in zip(inputs, targets, strict=True):
        kinds.append(2 if (last, word) in pairs else 1 if word in seen else 0)
        seen.add(word)
        pairs.add((last, word))
    return kinds


def classes(targets: TargetList) -> np.ndarray:
    """(N,) index into CLASSES of every target, given the text before it.

    new: the token has not come in this text; seen: it has; pair: the token before it and it have, in this order, so
    that one could copy. Tokens without a letter or a digit are punctuation (so are spaces), the closing ◆ is end,
    whatever came before.
    """
    result = np.concatenate(
        [
            repeats(targets.inputs[a:b].tolist(), targets.targets[a:b].tolist())
            for a, b in zip(targets.offsets[:-1], targets.offsets[1:], strict=True)
        ]
    )
    result[np.array(is_punctuation(targets.token_bytes))[targets.targets]] = CLASSES.index("punctuation")
    result[targets.ends] = CLASSES.index("end")
    return result


def is_punctuation(token_bytes: Sequence[bytes]) -> list[bool]:
    """True for a token that is whole UTF-8 and has no letter and no digit; half a character counts as a letter."""
    texts = [spelling.decode("utf-8", errors="replace") for spelling in token_bytes]
    return [not any(c.isalnum() or c == "\ufffd" for c in text) for text in texts]


def by_class(targets: TargetList, kinds: np.ndarray, losses: Sequence[Losses]) -> list[dict[str, Any]]:
    """Count, mean nats and mean probability of each class for each entry."""
    result = []
    for index, name in enumerate(CLASSES):
        mine = kinds == index
        n = int(mine.sum())
        nats = [float(entry.nats[mine].mean()) if n else None for entry in losses]
        p = [float(np.exp(-entry.nats[mine]).mean()) if n else None for entry in losses]
        result.append({"class": name, "targets": n, "nats": nats, "probability": p})
    return result
