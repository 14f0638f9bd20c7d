"""What held-out text has in common with the training text: characters, and runs of tokens.

    new_characters(targets, training_ids)               # (N,) targets with characters that training never had
    in_common(targets, training_ids)                    # both counts, as compare.py prints them

The runs are found by rostok/text/spans.py. NumPy only.
"""

from typing import Any

import numpy as np

from rostok.measuring.targets import TargetList
from rostok.text.spans import covered

RUN = 13  # tokens in a run that counts as overlap (Brown et al. 2020)


def new_characters(targets: TargetList, training: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """(N,) bool: targets with a character, or a part of one, that the training ids never spell; those characters."""
    known = set(spelled(targets, training))
    marks, new = np.zeros(len(targets), bool), set()
    for i in range(targets.n_texts):
        text = spelled(targets, targets.text(i))
        strange = set(text) - known
        if strange:
            new |= strange
            begin, end = int(targets.offsets[i]), int(targets.offsets[i + 1])
            marks[begin:end] = holds(text, strange, targets.target_bytes[begin:end])
    return marks, sorted(new)


def in_common(targets: TargetList, training: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """What to print of both: counts of targets with new characters and of those in shared runs; the texts (n,) without
    new characters.
    """
    marks, characters = new_characters(targets, training)
    shared = covered(targets.inputs, [training], RUN, targets.start_id)
    new_texts = np.unique(targets.text_of[marks])
    counts = {
        "new_targets": int(marks.sum()),
        "new_texts": len(new_texts),
        "characters": characters,
        "run": RUN,
        "shared_texts": len(np.unique(targets.text_of[shared])),
        "shared_share": float(shared.mean()),
    }
    return counts, np.setdiff1d(np.arange(targets.n_texts), new_texts)


def spelled(targets: TargetList, ids: np.ndarray) -> str:
    parts = (b"" if i == targets.start_id else targets.token_bytes[i] for i in ids.tolist())
    return b"".join(parts).decode("utf-8", errors="replace")


def holds(text: str, strange: set[str], sizes: np.ndarray) -> np.ndarray:
    """(T,) bool: which tokens, of `sizes` bytes each, overlap a strange character of their text."""
    widths = np.array([len(character.encode()) for character in text])
    odd = np.repeat([character in strange for character in text], widths)  # by byte
    before = np.concatenate(([0], np.cumsum(odd)))
    ends = np.minimum(np.cumsum(sizes), len(odd))
    return before[ends] > before[np.minimum(ends - sizes, len(odd))]
