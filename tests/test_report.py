"""Intervals, verdicts and tables."""

import math

import numpy as np
import pytest
from measured import entries_of, random_texts

from rostok.errors import UserError
from rostok.measuring import report
from rostok.measuring.figures import looks
from rostok.measuring.targets import (
    target_list,
)


def test_paired_bootstrap_sees_a_small_difference_that_single_intervals_hide() -> None:
    rng = np.random.default_rng(0)
    targets = target_list(random_texts([20] * 100), 0)
    hard = rng.gamma(2, 1, len(targets)) + np.repeat(rng.gamma(2, 1, 100), 21)  # some texts are hard for all
    result = report.tabulate(entries_of([hard, hard - 0.01, hard + rng.normal(0, 1, len(hard))], targets))
    first, better, same = result["rows"]
    assert better["interval"][1] > first["interval"][0]  # they overlap
    assert better["difference_interval"] == pytest.approx((-0.01, -0.01))
    assert same["difference_interval"][0] < 0 < same["difference_interval"][1]
    assert (
        result["words"][0] == "m1 is better than m0 on these texts by 0.0100 [0.0100, 0.0100] nats per token"
    )
    assert result["words"][1].startswith("cannot tell m2 from m0 on these texts: ")
    assert result["resampled"] == "100 texts"


def test_interval_is_about_two_standard_errors() -> None:
    values = np.random.default_rng(1).normal(3, 1, 400)
    targets = target_list([np.array([0])] * 400, 0)
    low, high = report.tabulate(entries_of([values], targets))["rows"][0]["interval"]
    assert (high - low) == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_few_texts_are_drawn_in_stretches_and_one_stretch_has_no_interval() -> None:
    long = target_list(random_texts([1000]), 0)
    assert report.tabulate(entries_of([np.ones(1001)], long))["resampled"] == "4 stretches of text"
    short = target_list(random_texts([3]), 0)
    result = report.tabulate(entries_of([np.ones(4), np.full(4, 2.0)], short))
    assert result["rows"][0]["interval"] is None
    assert result["words"] == [
        "m1 and m0: too little text for an interval (difference +1.0000 nats per token)"
    ]
    assert "n/a" in report.as_text(result)


def test_rows_of_other_targets_are_refused_and_other_tokens_of_the_same_text_are_not() -> None:
    pieces = [b"<|endoftext|>", b"a", b"b", b"ab"]
    fine = target_list([np.array([0, 1, 2])] * 3, 0, pieces)
    coarse = target_list([np.array([0, 3])] * 3, 0, pieces)
    other = target_list([np.array([0, 3, 3])] * 3, 0, pieces)
    (first,), (second,), (third,) = (entries_of([np.ones(len(t))], t) for t in (fine, coarse, other))
    with pytest.raises(UserError, match="different held-out texts"):
        report.tabulate([first, third])
    result = report.tabulate([first, second])
    assert result["unit"] == "bits per byte"
    assert result["rows"][1]["bits_per_byte"] == pytest.approx(1 / math.log(2) / 2)
    assert result["rows"][1]["difference"] == pytest.approx((1 - 2) / math.log(2) / 2)
    assert "perplexity" not in report.as_text(result)
    assert "only bits per byte can be compared" in report.as_text(result)


def test_a_figure_of_forty_lines_has_no_two_that_look_alike() -> None:
    """Ten colours are not enough: the 11th line would be taken for the first."""
    seen = {(look["color"], look["ls"], look["lw"]) for look in looks(40)}
    assert len(seen) == 40
