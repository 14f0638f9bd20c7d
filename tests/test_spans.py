"""Spans that a text shares with the shards, against plain loops over slices."""

import numpy as np
import pytest

from rostok.text import spans


def slow_spans(ids: list[int], arrays: list[list[int]], length: int) -> list[bool]:
    known = {tuple(array[i : i + length]) for array in arrays for i in range(len(array) - length + 1)}
    found = [tuple(ids[i : i + length]) for i in range(len(ids) - length + 1)]
    return [span in known and 0 not in span for span in found]


@pytest.mark.parametrize("block", [7, 1 << 22])
def test_spans_equal_a_loop_over_slices(monkeypatch, block: int) -> None:
    monkeypatch.setattr(spans, "BLOCK", block)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 4, 60), rng.integers(0, 4, 3), rng.integers(0, 4, 40)]
    ids = rng.integers(0, 4, 80)
    lists = [array.tolist() for array in arrays]
    every = {n: slow_spans(ids.tolist(), lists, n) for n in range(1, 81)}
    for least in (1, 3, 5, 9, 100):
        longest = [max((n for n in range(least, 81 - i) if every[n][i]), default=0) for i in range(80)]
        assert spans.span_lengths(ids, arrays, least, 0).tolist() == longest
        tokens = {i + k for i, n in enumerate(longest) if n for k in range(n)}
        assert set(np.flatnonzero(spans.covered(ids, arrays, least, 0)).tolist()) == tokens
    texts = np.split(ids, np.flatnonzero(ids == 0) + 1)
    texts = [text[:-1] for text in texts if len(text) > 1]
    for text, found in zip(texts, spans.traces(texts, arrays, 0, length=3), strict=True):
        slow = {n: slow_spans(text.tolist(), lists, n) for n in range(1, len(text) + 1)}
        assert found.longest == max((n for n, there in slow.items() if any(there)), default=0)
        assert slow[found.longest][found.begin]
        assert (found.spans, found.found) == (len(slow.get(3, [])), sum(slow.get(3, [])))


def test_a_text_that_shares_nothing_and_one_that_is_copied() -> None:
    training = [np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 5])]
    texts = [np.array([11, 12]), training[0][1:10], np.array([], int), np.array([11, 5, 6])]
    assert spans.traces(texts, training, 0) == [
        spans.Trace(0, 0, 0, 0),
        spans.Trace(9, 0, 2, 2),
        spans.Trace(0, 0, 0, 0),
        spans.Trace(2, 1, 0, 0),
    ]
