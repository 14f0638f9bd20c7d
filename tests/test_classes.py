"""Classes of targets, by hand."""

import numpy as np
from measured import TOKEN_BYTES

from rostok.measuring import classes
from rostok.measuring.targets import Losses, target_list


def test_classes_by_hand() -> None:
    targets = target_list([np.array([0, 1, 2, 1, 4, 1, 2, 3, 4, 5]), np.array([0, 1])], 0, TOKEN_BYTES)
    names = [classes.CLASSES[k] for k in classes.classes(targets)]
    first = ["new", "new", "seen", "punctuation", "seen", "pair", "new", "punctuation", "new", "end"]
    assert names == [*first, "new", "end"]
    losses = Losses(np.arange(12.0), np.zeros(12, bool))
    told = classes.by_class(targets, classes.classes(targets), [losses])
    assert [entry["targets"] for entry in told] == [5, 2, 1, 2, 2]
    assert told[2]["nats"] == [5.0]
