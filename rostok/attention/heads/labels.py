"""What kind of head is it? Labels from the scores of a report card, and how much they depend on the thresholds.

    used = judge(subject, heads, texts)       # writes head["labels"] of each record: at most two, the first counts
    sensitivity(heads, used)                  # the same at thresholds of 0.3, 0.4 and 0.5

The rules are in docs/attention.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rostok.attention.heads.capture import Subject
from rostok.attention.heads.card import best_scan
from rostok.attention.heads.scores import KINDS, STRONG, verdicts
from rostok.attention.heads.usage import pair_loss
from rostok.attention.reference import Array

POSITIONAL = 0.8  # a head whose scores the distance explains so well is not an induction head
THRESHOLDS = (0.3, 0.4, 0.5)


def judge(subject: Subject, heads: Sequence[dict[str, Any]], texts: Sequence[Array]) -> float | None:
    """Assign labels. Induction also needs evidence beyond the maps.

    For shift 1 the head must copy; for other shifts silencing all such heads must raise the loss on repeated pairs.
    Returns that rise in nats.
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
