"""Every number of the worked examples: computed by the reference, against what is recorded and what was printed."""

import json
from decimal import Decimal

import numpy as np
import pytest

from rostok.attention.examples import EXAMPLES, STATUS, Example, Value, compute, examples_json, find

VALUES = [
    pytest.param(example, value, id=f"{example.handle}-{value.name}")
    for example in EXAMPLES.values()
    for value in example.values
]
PRINTED = [param for param in VALUES if param.values[1].printed is not None]


@pytest.mark.parametrize(("example", "value"), VALUES)
def test_exact_value_is_what_the_reference_computes(example: Example, value: Value):
    np.testing.assert_allclose(value.pick(compute(example)), value.exact, rtol=0, atol=5e-7)


@pytest.mark.parametrize(("example", "value"), PRINTED)
def test_printed_value_at_its_own_precision(example: Example, value: Value):
    exact = np.atleast_1d(value.pick(compute(example))) * value.factor
    printed = np.atleast_1d(np.array(value.printed, dtype=str))
    matches = [
        abs(float(text) - number) <= 0.5 * 10.0 ** Decimal(text).as_tuple().exponent + 1e-12  # type: ignore[operator]
        for text, number in zip(printed, exact, strict=True)
    ]
    assert all(matches) is (value.status != "OFF")
    assert value.status != "OFF" or example.note is not None
