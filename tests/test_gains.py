"""Where a gain comes from: shown less, classes, control, position, sweep."""

import numpy as np
import pytest
import torch
from measured import TOKEN_BYTES, V, naive_nats, random_model, random_texts, tiny

from model import WindowMLPConfig
from rostok.measuring import classes, gains
from rostok.measuring.score import score
from rostok.measuring.targets import (
    Entry,
    Losses,
    memory_windows,
    target_list,
    text_windows,
)


@pytest.mark.parametrize("opened", [False, True])
def test_narrow_equals_one_call_a_target(opened: bool) -> None:
    model, targets = tiny(16), target_list(random_texts([30, 2, 6]), 0)
    full = score(model, targets, text_windows(targets, 16, 8))
    places = np.arange(len(targets))
    got = gains.narrow(model, targets, full, places, 4, opened)
    expected = []
    for i in range(targets.n_texts):
        sequence = [*targets.text(i).tolist(), 0]
        for n in range(1, len(sequence)):
            before = sequence[1:n] if opened else sequence[:n]
            expected.append(naive_nats(model, [0] * opened + before[-4:], sequence[n]))
    np.testing.assert_allclose(got.nats, expected, atol=1e-5)
    assert model(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, V)  # the hook is gone


def test_sampling_whole_texts() -> None:
    targets = target_list(random_texts([9] * 50), 0)
    chosen = gains.sample_texts(targets, 95)
    assert len(chosen) == 10
    assert chosen == gains.sample_texts(targets, 95) == sorted(set(chosen))
    assert gains.sample_texts(targets, 500) == list(range(50))
    part = targets.subset(chosen)
    assert (targets.targets[targets.indices(chosen)] == part.targets).all()
    assert part.sha256 != targets.sha256


def test_classes_behind_a_swapped_beginning() -> None:
    own = np.array([0, 7, 8, 9, 10, 11, 12, 13, 20, 21, 22, 23, 24, 25, 26, 27, 7, 8, 30, 10, 21, 22])
    words = np.append(own[1:], 0)
    kinds = gains.kinds_after_cut(own, words, 8, [False] * V)
    named = {int(words[t]): classes.CLASSES[k] for t, k in enumerate(kinds) if k >= 0}
    assert named == {
        7: "seen",
        8: "pair",
        30: "new",
        10: "seen",
    }  # 21 and 22 still stand behind the cut; ◆ never


def test_control_takes_nothing_from_a_model_of_eight_tokens() -> None:
    targets = target_list(random_texts([40, 60, 50, 3], vocab=40), 0, TOKEN_BYTES)
    window = random_model(WindowMLPConfig(vocab_size=V, context=64, d_embed=4, d_hidden=8))
    gpt = tiny(64)
    rows = [
        Entry("window", 8, targets, score(window, targets, memory_windows(targets, 8))),
        Entry("gpt", 64, targets, score(gpt, targets, text_windows(targets, 64, 32))),
    ]
    told = gains.control([window, gpt], rows, range(4))
    assert [entry["class"] for entry in told] == ["new", "seen", "pair"]
    assert sum(entry["targets"] for entry in told) > 20
    for entry in told[:2]:
        assert abs(entry["rows"][0]["gain"]) < 1e-6
        assert abs(entry["rows"][1]["gain"]) > 1e-6


def test_loss_by_position() -> None:
    targets = target_list(random_texts([20, 3]), 0)
    bins = gains.by_position(
        targets, [Losses(targets.position.astype(float), targets.ends)], gains.position_bins(20)
    )
    assert [(b["first"], b["last"], b["targets"]) for b in bins[:3]] == [(1, 1, 2), (2, 2, 2), (3, 3, 2)]
    assert [b["nats"][0] for b in bins[:8]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sum(b["targets"] for b in bins) == 23


def test_sweep_ends_where_the_full_context_is() -> None:
    model, targets = tiny(32), target_list(random_texts([20, 25]), 0)
    full = score(model, targets, text_windows(targets, 32, 16))
    told = gains.sweep([model], [Entry("gpt", 32, targets, full)], 1000)
    points = told["curves"][0]["points"]
    assert [point["shown"] for point in points] == [8, 16, 32]
    assert points[-1]["nats"] == full.nats.mean()  # no text is longer: the very same losses
    assert points[0]["nats"] != points[1]["nats"]
