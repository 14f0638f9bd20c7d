"""The list of targets and the windows: each target once, with what comes before it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import V, random_model, random_texts

from model import WindowMLPConfig
from rostok.errors import UserError
from rostok.measuring.score import score
from rostok.measuring.targets import (
    memory_windows,
    target_list,
    text_windows,
)


def test_every_token_and_every_closing_mark_is_a_target_once() -> None:
    targets = target_list([np.array([0, 7, 8]), np.array([0]), np.array([0, 9])], 0)
    assert targets.targets.tolist() == [7, 8, 0, 0, 9, 0]
    assert targets.position.tolist() == [1, 2, 3, 1, 1, 2]
    assert targets.text_of.tolist() == [0, 0, 0, 1, 2, 2]
    assert targets.ends.tolist() == [False, False, True, True, False, True]


def test_hash_tells_lists_apart_and_text_hash_does_not_see_the_tokenizer() -> None:
    pieces = [b"<|endoftext|>", b"a", b"b", b"ab"]
    split = target_list([np.array([0, 1, 2])], 0, pieces)
    glued = target_list([np.array([0, 3])], 0, pieces)
    other = target_list([np.array([0, 1]), np.array([0, 2])], 0, pieces)
    assert len({split.sha256, glued.sha256, other.sha256}) == 3
    assert split.texts_sha256 == glued.texts_sha256 != other.texts_sha256
    assert split.n_bytes == glued.n_bytes == 2


def test_lists_that_cannot_be() -> None:
    with pytest.raises(UserError, match="no held-out texts"):
        target_list([], 0)
    with pytest.raises(UserError, match="not opened by ◆"):
        target_list([np.array([0, 1]), np.array([5, 1])], 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 70), min_size=1, max_size=5), st.integers(2, 20), st.data())
def test_windows_ask_for_each_target_once_with_what_stands_before_it(lengths, context, data) -> None:
    targets = target_list(random_texts(lengths), 0)
    stride = data.draw(st.integers(1, context - 1))
    seen = np.zeros(len(targets), int)
    for window in text_windows(targets, context, stride):
        assert len(window.ids) <= context
        assert window.ids[0] == 0
        for at in range(window.skip, len(window.ids)):
            place = window.first + at - window.skip
            seen[place] += 1
            own = targets.inputs[place - at + 1 : place + 1]  # all but the ◆ in front
            assert window.ids[1 : at + 1].tolist() == own.tolist()
            assert at + 1 >= min(targets.position[place], context - stride + 1)
    assert (seen == 1).all()


@pytest.mark.parametrize(("context", "stride"), [(16, 0), (16, 16), (1, 1), (2, 2)])
def test_strides_and_contexts_that_cannot_be(context: int, stride: int) -> None:
    with pytest.raises(UserError, match=r"--stride must be|at least 2"):
        list(text_windows(target_list(random_texts([30]), 0), context, stride))


def test_window_model_in_chunks_is_the_window_model_on_the_whole_text() -> None:
    model = random_model(WindowMLPConfig(vocab_size=V, d_embed=4, d_hidden=8))
    targets = target_list(random_texts([90, 3]), 0)
    chunked = score(model, targets, memory_windows(targets, 8, chunk=13))
    whole = score(model, targets, memory_windows(targets, 8))
    np.testing.assert_allclose(chunked.nats, whole.nats, atol=1e-5)
