"""Every number of the worked examples: computed by the reference, against what is recorded and what was printed."""

import json
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest

from rostok.attention.by_hand import experiments
from rostok.attention.by_hand.examples import EXAMPLES, STATUSES, Example, Value, compute, examples_json, find

HANDLES = list(EXAMPLES)


@pytest.mark.parametrize("handle", HANDLES)
def test_exact_values_are_what_the_reference_computes(handle: str):
    computed = compute(EXAMPLES[handle])
    for value in EXAMPLES[handle].values:
        np.testing.assert_allclose(
            value.pick(computed), value.exact, rtol=0, atol=5e-7, err_msg=f"{handle} {value.name}"
        )


def is_printed_right(text: str, number: float) -> bool:
    """Does the number round to the printed text, at the text's own number of digits?"""
    if text.startswith(">"):
        return number > float(text[1:])
    digits = -int(Decimal(text).as_tuple().exponent)
    return abs(float(text) - number) <= 0.5 * 10.0**-digits + 1e-12


@pytest.mark.parametrize("handle", HANDLES)
def test_printed_values_at_their_own_precision(handle: str):
    example, computed = EXAMPLES[handle], compute(EXAMPLES[handle])
    for value in (value for value in example.values if value.printed is not None):
        exact = np.atleast_1d(value.pick(computed)) * value.factor
        printed = np.atleast_1d(np.array(value.printed, dtype=str))
        matches = [is_printed_right(text, number) for text, number in zip(printed, exact, strict=True)]
        assert all(matches) is (value.status != "OFF"), (handle, value.name)
        assert value.status != "OFF" or example.note is not None


def value_of(handle: str, name: str) -> Value:
    return next(value for value in EXAMPLES[handle].values if value.name == name)


def test_the_printed_numbers_that_are_wrong():
    assert [e.handle for e in EXAMPLES.values() if e.status == "OFF"] == ["S0-11", "S0-14"]
    token, fish = value_of("S0-11", "token-5"), value_of("S0-14", "fish-output")
    assert f"{100 * token.exact:.2f}" == "83.84" != token.printed
    assert [f"{x:.3f}" for x in fish.exact] == ["3.996", "2.000"] != fish.printed
    by_hand = np.array([0, 0.001, 0.999]) @ compute(EXAMPLES["S0-14"])["v"]  # weights rounded by hand
    np.testing.assert_allclose(by_hand, [float(x) for x in fish.printed], atol=5e-7)


def test_S0_11_the_printed_column_was_made_to_sum_to_100():
    values = [value for value in EXAMPLES["S0-11"].values if value.name.startswith("token")]
    assert sum(Decimal(value.printed) for value in values) == Decimal("100.00")
    assert sum(round(Decimal(value.exact) * 100, 2) for value in values) == Decimal("100.01")
    assert np.exp(8 - 6.2) == pytest.approx(6.0496, abs=5e-5)


def test_scores_times_v_is_wrong_by_up_to_1_09():
    computed = compute(EXAMPLES["S1-14"])
    literal = computed["scaled"] @ computed["v"]
    np.testing.assert_allclose(literal[0], [-0.208014, 0.170889, 0.602104, 0.298573, -0.230946], atol=5e-7)
    assert np.abs(literal - computed["output"]).max() == pytest.approx(1.09, abs=0.005)


def test_S3_20_the_row_by_hand_is_the_row_of_the_matrix():
    computed = compute(EXAMPLES["S3-20"])
    np.testing.assert_allclose(computed["by-hand-weights"], computed["weights"][0, 3, :4], atol=1e-12)


def test_W3_a_longer_query_is_a_sharper_softmax():
    inputs = EXAMPLES["S3-12"].inputs
    for m in (0.25, 0.5, 2.0, 3.0, 5.0, 10.0):
        longer = compute(replace(EXAMPLES["S3-12"], inputs={**inputs, "q": [[1.4 * m, 0.7 * m]]}))
        np.testing.assert_allclose(
            longer["weights"], compute(EXAMPLES[f"W3-sharpness-{m:g}"])["weights"], atol=1e-12
        )


def test_S3_21_ties_share_equally_however_sharp():
    tied = {"q": [[1, 0]], "k": [[1, 0], [1, 0], [0, 1]], "v": [[1], [2], [3]], "scale": 500.0}
    weights = compute(Example("tie", {}, "attention", tied, ()))["weights"]
    np.testing.assert_allclose(weights, [[0.5, 0.5, 0]], atol=1e-12)


# ---- the list as a whole ---------------------------------------------------------------------------------


def test_every_example_is_complete():
    for example in EXAMPLES.values():
        assert set(example.title) == {"en", "ru"}
        assert example.note is None or set(example.note) == {"en", "ru"}
        names = [value.name for value in example.values]
        assert len(set(names)) == len(names) > 0
        for value in example.values:
            assert value.status in STATUSES
            assert (value.printed is None) == (value.status == "OURS"), (example.handle, value.name)


def test_aliases_are_unique_and_found_in_any_case():
    names = [name.casefold() for e in EXAMPLES.values() for name in (e.handle, *e.aliases)]
    assert len(set(names)) == len(names)
    assert find("SHE") is find("s3-12") is EXAMPLES["S3-12"]
    assert find("Кошка") is EXAMPLES["S2-03"]
    assert find("nothing") is None


def test_examples_json_is_plain_and_complete():
    rows = json.loads(examples_json())
    assert [row["handle"] for row in rows] == list(EXAMPLES)
    fish = next(row for row in rows if row["handle"] == "S0-14")
    assert fish["values"][-1] == {
        "name": "fish-output",
        "printed": ["3.997", "2.001"],
        "exact": [3.995761, 2.0],
        "status": "OFF",
        "factor": 1,
    }
    assert "NaN" not in examples_json()
    assert "Infinity" not in examples_json()


# ---- the experiments -------------------------------------------------------------------------------------


def test_S1_05_variance_grows_as_d_and_the_scale_undoes_it():
    for d, var, std, *_ in experiments.variance(dims=(2, 64, 512), pairs=10_000, queries=10).rows:
        assert var == pytest.approx(d, rel=0.06)
        assert std == pytest.approx(1, abs=0.03)


def test_S1_08_S3_15_saturation_as_measured():
    small, rostok, large = (row[3:] for row in experiments.variance(dims=(2, 64, 512), pairs=10).rows)
    measured = {  # max weight, entropy, trace, Jacobian norm: unscaled and scaled
        "small": (0.164, 0.102, 3.385, 3.722, None, None, 0.207, 0.177),
        "rostok": (0.799, 0.103, 0.566, 3.697, 0.285, 0.961, 0.206, 0.182),
        "large": (0.937, 0.103, 0.168, 3.696, 0.104, 0.961, 0.084, 0.182),
    }
    for row, expected in zip((small, rostok, large), measured.values(), strict=True):
        for found, number in zip(row, expected, strict=True):
            assert number is None or found == pytest.approx(number, abs=0.06)


def test_entropy_and_trace_of_known_weights():
    uniform, one = np.full(64, 1 / 64), np.eye(64)[0]
    assert experiments.entropy(uniform) == pytest.approx(np.log(64))
    assert experiments.entropy(one) == 0
    assert experiments.trace_of_jacobian(uniform) == pytest.approx(63 / 64)
    p = np.array([0.2, 0.3, 0.5])
    jacobian = np.diag(p) - np.outer(p, p)
    assert experiments.jacobian_norm(p) == pytest.approx(np.linalg.norm(jacobian))
    assert experiments.trace_of_jacobian(p) == pytest.approx(np.trace(jacobian))


def test_S3_17_each_doubling_costs_nearly_four_times():
    kept = [row[2] for row in experiments.cost().rows]
    ratios = [b / a for a, b in pairwise(kept)]  # type: ignore[operator]
    assert ratios[0] == pytest.approx(3.78, abs=0.005)
    assert 3.99 < ratios[5] < 4
    assert ratios == sorted(ratios)


def test_S1_09_multiplications_are_n_m_times_both_widths():
    row = experiments.cost(lengths=(512,)).rows[0]
    assert row[5] == 512 * 512 * (64 + 64)


def test_S0_16_the_cache_saves_171_or_342_times():
    *_, last = experiments.cache().rows
    assert [round(float(x)) for x in last[4:6]] == [342, 171]  # type: ignore[arg-type]


def test_S0_12_experiment_naive_is_nan_and_shifted_is_not():
    for name, _, exp, naive, first, second in experiments.overflow().rows:
        assert (exp, naive) == ("inf", "nan")
        assert first + second == pytest.approx(1, abs=1e-3 if name == "float16" else 1e-7)  # type: ignore[operator]


def test_every_experiment_has_both_languages_and_full_rows():
    for name, experiment in experiments.EXPERIMENTS.items():
        if name == "variance":  # slow; measured above
            continue
        table = experiment()
        for text in (table.title, table.note, *table.columns):
            assert set(text) == {"en", "ru"}
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert set(experiments.ALIASES.values()) <= set(experiments.EXPERIMENTS)
