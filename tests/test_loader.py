"""The loader: rows by hand and by a slow second implementation, each row once an epoch, ranks, resuming, C02, C07."""

from pathlib import Path

import numpy as np
import pytest

from rostok.errors import UserError
from rostok.text.shards import Split
from rostok.training.loader import RowLoader, cut_segments, evaluation_rows, pack


def split_of(texts: list[list[int]], shards: int = 1) -> Split:
    """A split in memory: every text is ◆ = 0 and its ids; divided into shards between texts."""
    groups = [list(group) for group in np.array_split(np.arange(len(texts)), shards)]
    arrays = [np.array([i for t in group for i in (0, *texts[t])], dtype=np.uint16) for group in groups]
    lengths = [len(text) + 1 for text in texts]
    return Split(
        name="train",
        where="data/test/train-*.npy",
        tokens=sum(lengths),
        bytes=sum(lengths),
        sha256="",
        arrays=arrays,
        shard_starts=np.cumsum([0, *(len(a) for a in arrays[:-1])]).tolist(),
        starts=np.cumsum([0, *lengths]),
    )


def texts_of(count: int, seed: int = 0, longest: int = 40) -> list[list[int]]:
    """Texts of distinct ids in a row, so that a token says where it stood."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, longest, count)
    ends = np.cumsum(sizes) + 1
    return [list(range(end - size, end)) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


def slow_rows(texts: list[list[int]], context: int, order: np.ndarray) -> list[list[int]]:
    """The packing again, in lists: what the docstring says, word by word."""
    segments = [[0, *text[i : i + context]] for text in texts for i in range(0, len(text), context)]
    rows, row = [], []
    for number in order:
        row += segments[number]
        if len(row) >= context + 1:
            rows.append(row[: context + 1])
            row = []
    return rows


def rows_of(loader: RowLoader, epoch: int) -> list[list[int]]:
    return [loader.row(epoch, i).tolist() for i in range(loader.rows_per_epoch(epoch))]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("context", [1, 7, 16, 64])
def test_rows_are_the_slow_rows(context: int, shards: int) -> None:
    texts = texts_of(60)
    loader = RowLoader(split_of(texts, shards), context, batch=2, seed=5)
    for epoch in (0, 1, 4):
        order = np.random.Generator(np.random.PCG64([5, epoch])).permutation(len(loader.segments.starts))
        assert rows_of(loader, epoch) == slow_rows(texts, context, order)


def test_every_row_starts_with_start_and_follows_the_text() -> None:
    texts = texts_of(200)
    loader = RowLoader(split_of(texts), 32, batch=4, seed=1)
    ends = {text[-1] for text in texts}
    cuts = {text[i] for text in texts for i in range(31, len(text), 32)}
    for ids, targets in (next(loader) for _ in range(20)):
        assert (ids[:, 0] == 0).all()
        assert (ids[:, 1:] == targets[:, :-1]).all()
        assert ids.dtype == targets.dtype == np.int64
        assert ids.shape == targets.shape == (4, 32)
        for a, b in zip(ids.ravel().tolist(), targets.ravel().tolist(), strict=True):
            assert b == a + 1 or b == 0 or a == 0, "a token is followed by its text's next"
            assert b != 0 or a in ends | cuts, "only a whole text is followed by its ◆"


def test_segments_of_a_long_text() -> None:
    segments = cut_segments(split_of([[1, 2, 3, 4, 5], [6, 7], [8, 9, 10, 11]]), context=2)
    assert segments.lengths.tolist() == [3, 3, 2, 3, 3, 3]
    assert segments.starts.tolist() == [1, 3, 5, 7, 10, 12]


def test_pack_by_hand() -> None:
    plan = pack(np.array([2, 0, 1, 3]), np.array([3, 4, 2, 5]), width=5)
    assert plan.rows == [0, 2, 4]  # 2 + 3 exactly; 4 + 5, four left out
    assert plan.tokens == 14
    assert pack(np.arange(2), np.array([3, 1]), width=5).rows == [0]  # nothing full


def test_epochs_differ_and_seeds_differ_and_both_repeat() -> None:
    split = split_of(texts_of(100))
    one, again, other = (RowLoader(split, 16, 2, seed) for seed in (1, 1, 2))
    assert rows_of(one, 0) == rows_of(again, 0)
    assert rows_of(one, 0) != rows_of(one, 1)
    assert rows_of(one, 0) != rows_of(other, 0)


def test_no_other_random_stream_is_touched() -> None:
    np.random.seed(3)
    before = str(np.random.get_state())
    next(RowLoader(split_of(texts_of(50)), 16, 2, seed=1))
    assert str(np.random.get_state()) == before


def fifty() -> Split:
    """Fifty texts that fill a row of context 8 each: every epoch has exactly fifty rows."""
    return split_of([list(range(1 + 8 * i, 9 + 8 * i)) for i in range(50)])


@pytest.mark.parametrize("batch", [1, 3, 7, 50, 64])
def test_resume_at_ninety_percent_sees_each_row_once(batch: int) -> None:
    """C02: 50 rows, stop at 90 % of the first epoch, go on in a new process, three epochs in all."""
    loader = RowLoader(fifty(), 8, batch, seed=4)
    seen: list[int] = []
    while len(seen) < 45:
        seen += next(loader)[1][:, 0].tolist()
    state = loader.state()
    assert all(type(value) is int for value in state.values())
    loader = RowLoader(fifty(), 8, batch, seed=4)
    loader.load_state(state)
    while len(seen) < 150:
        seen += next(loader)[1][:, 0].tolist()
    for epoch in range(3):
        assert sorted(seen[50 * epoch : 50 * epoch + 50]) == [1 + 8 * i for i in range(50)]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_divide_the_same_rows(world: int) -> None:
    split = split_of(texts_of(90))
    whole = RowLoader(split, 16, 6, seed=2)
    ranks = [RowLoader(split, 16, 6 // world, seed=2, rank=r, world=world) for r in range(world)]
    for _ in range(3 * whole.rows_per_epoch() // 6):
        together = np.stack([next(rank)[0] for rank in ranks], axis=1).reshape(6, 16)
        assert (together == next(whole)[0]).all()
        assert [rank.state() for rank in ranks] == [whole.state()] * world
    assert whole.state()["epoch"] >= 2


def test_state_of_one_process_goes_on_in_two() -> None:
    split = split_of(texts_of(90))
    one = RowLoader(split, 16, 4, seed=2)
    next(one)
    two = RowLoader(split, 16, 2, seed=2, rank=1, world=2)
    two.load_state(one.state())
    assert (next(two)[0] == next(one)[0][1::2]).all()


def test_left_out_share_is_what_is_missing() -> None:
    texts = texts_of(300)
    loader = RowLoader(split_of(texts), 64, 4, seed=1)
    segments = sum(-(-len(text) // 64) + len(text) for text in texts)
    assert loader.left_out_share == pytest.approx(1 - 65 * loader.rows_per_epoch() / segments)
    assert 0 < loader.left_out_share < 0.4
    assert RowLoader(fifty(), 8, 4, seed=1).left_out_share == 0


def test_too_little_text_says_what_is_needed() -> None:
    """C07: the count, what a row needs, the file."""
    split = split_of([[1, 2, 3], [4, 5]])
    for make in (lambda: RowLoader(split, 512, 8, seed=1), lambda: evaluation_rows(split, 512, 8)):
        with pytest.raises(UserError, match=r"data/test/train-\*.npy has 7 tokens.*context 512 needs 513"):
            make()
    assert RowLoader(split, 6, 8, seed=1).rows_per_epoch() == 1
    assert next(RowLoader(split, 6, 8, seed=1))[0].shape == (8, 6)


def test_row_out_of_range() -> None:
    with pytest.raises(IndexError, match="row 50 of 50"):
        RowLoader(fifty(), 8, 4, seed=1).row(0, 50)


def test_evaluation_rows_are_unshuffled_and_fixed() -> None:
    texts = texts_of(60)
    expected = np.array(
        slow_rows(texts, 16, np.arange(10_000)[: len(cut_segments(split_of(texts), 16).starts)])
    )
    ids, targets = evaluation_rows(split_of(texts, 2), 16, 5)
    assert (ids == expected[:5, :-1]).all()
    assert (targets == expected[:5, 1:]).all()
    assert len(evaluation_rows(split_of(texts), 16, 10_000)[0]) == len(expected)


def test_batches_open_no_file(tmp_path: Path, tiny_data, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = RowLoader(tiny_data.split("train"), 32, 4, seed=1)
    monkeypatch.setattr(np, "load", lambda *a, **k: pytest.fail("a file was opened again"))
    monkeypatch.setattr("builtins.open", lambda *a, **k: pytest.fail("a file was opened again"))
    for _ in range(3 * loader.rows_per_epoch() // 4):
        ids, _targets = next(loader)
    assert ids.max() < tiny_data.vocab_size
