"""What a text has in common with the training text, against plain loops over slices."""

import numpy as np
import pytest

from rostok.measuring import overlap
from rostok.measuring.targets import target_list


def slow_runs(ids: list[int], arrays: list[list[int]], length: int) -> list[bool]:
    known = {tuple(array[i : i + length]) for array in arrays for i in range(len(array) - length + 1)}
    spans = [tuple(ids[i : i + length]) for i in range(len(ids) - length + 1)]
    return [span in known and 0 not in span for span in spans]


@pytest.mark.parametrize("block", [7, 1 << 22])
def test_runs_equal_a_loop_over_slices(monkeypatch, block: int) -> None:
    monkeypatch.setattr(overlap, "BLOCK", block)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 4, 60), rng.integers(0, 4, 3), rng.integers(0, 4, 40)]
    ids = rng.integers(0, 4, 80)
    lists = [array.tolist() for array in arrays]
    for length in (1, 3, 5, 9, 100):
        slow = slow_runs(ids.tolist(), lists, length)
        assert overlap.found_runs(ids, arrays, length, 0).tolist() == slow
        tokens = {i + k for i, found in enumerate(slow) if found for k in range(length)}
        assert set(np.flatnonzero(overlap.covered(ids, arrays, length, 0)).tolist()) == tokens
    lengths = [n for n in range(1, 81) if any(slow_runs(ids.tolist(), lists, n))]
    found = overlap.trace(ids, arrays, 0, length=3)
    assert found.longest == max(lengths)
    assert slow_runs(ids.tolist(), lists, found.longest)[found.begin]
    spans = [i for i in range(78) if 0 not in ids[i : i + 3]]
    assert found.share == pytest.approx(sum(slow_runs(ids.tolist(), lists, 3)) / len(spans))


def test_a_text_that_shares_nothing_and_one_that_is_copied() -> None:
    training = [np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 5])]
    assert overlap.trace(np.array([0, 11, 12]), training, 0) == overlap.Trace(0, 0, 0.0)
    assert overlap.trace(training[0][:10], training, 0) == overlap.Trace(9, 1, 1.0)


def test_targets_with_new_characters() -> None:
    """Half a character counts; a character that training has does not."""
    letters = [
        b"<|endoftext|>",
        b"a",
        b"b",
        "\u0436".encode()[:1],
        "\u0436".encode()[1:],
        "\u0437".encode()[1:],
        b"bc",
    ]
    held_out = target_list(
        [np.array([0, 1, 3, 4, 2]), np.array([0, 1, 6]), np.array([0, 3, 5, 1])], 0, letters
    )
    marks, found = overlap.new_characters(held_out, np.array([0, 1, 2, 3, 5, 0, 1]))
    assert found == ["c", "\u0436"]
    assert marks.tolist() == [False, True, True, False, False] + [False, True, False] + [False] * 4
