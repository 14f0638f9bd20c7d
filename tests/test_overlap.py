"""Characters that the training text never had."""

import numpy as np

from rostok.measuring import overlap
from rostok.measuring.targets import target_list


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
