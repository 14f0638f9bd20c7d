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


def is_printed_right(text: str, number: float) -> bool:
    """Does the number round to the printed text, at the text's own number of digits?"""
    if text.startswith(">"):
        return number > float(text[1:])
    digits = -int(Decimal(text).as_tuple().exponent)
    return abs(float(text) - number) <= 0.5 * 10.0**-digits + 1e-12


@pytest.mark.parametrize(("example", "value"), PRINTED)
def test_printed_value_at_its_own_precision(example: Example, value: Value):
    exact = np.atleast_1d(value.pick(compute(example))) * value.factor
    printed = np.atleast_1d(np.array(value.printed, dtype=str))
    matches = [is_printed_right(text, number) for text, number in zip(printed, exact, strict=True)]
    assert all(matches) is (value.status != "OFF")
    assert value.status != "OFF" or example.note is not None


def test_the_two_wrong_numbers_are_wrong_in_every_printed_digit():
    """S0-11 token 5 and both components of the output of "fish": what is printed comes from rounding by hand."""
    assert [(e.values[0].id) for e in ()] == []
