"""Intervals are those of scipy and of the textbook."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lidfl.studies.statistics import Difference, paired_difference

ACCURACIES = st.dictionaries(st.integers(0, 9), st.floats(0, 1), min_size=2)


def test_by_hand() -> None:
    """Differences 0.01, 0.02 and 0.06: mean 0.03, deviation 0.02646, t(2) = 4.3027, so ± 0.06572."""
    gap = paired_difference({1: 0.51, 2: 0.42, 3: 0.36}, {3: 0.30, 1: 0.50, 2: 0.40})
    assert gap is not None
    assert (gap.mean, gap.low, gap.high, gap.seeds) == pytest.approx((0.03, -0.03572, 0.09572, 3), abs=1e-5)
    assert not gap.excludes_zero
    assert gap.text() == "+0.030 [−0.036, +0.096]"


@given(ACCURACIES, ACCURACIES)
def test_the_t_interval_is_scipys(values: dict[int, float], reference: dict[int, float]) -> None:
    shared = sorted(values.keys() & reference.keys())
    ours, theirs = ([runs[seed] for seed in shared] for runs in (values, reference))
    gap = paired_difference(values, reference)
    if len(shared) < 2:
        assert (gap is None) == (not shared)
        return
    assert gap is not None
    assert gap.seeds == len(shared)
    if np.ptp(np.subtract(ours, theirs)) < 1e-6:  # nearly equal: nothing but rounding is left to compare
        return
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (gap.low, gap.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_bootstrap_lies_within_what_was_seen_and_is_always_the_same() -> None:
    """Of five differences drawn with replacement the mean is binomial in the number of ones; the middle 95 % of it,
    with one chance in five, reaches from 0 to 3 of 5."""
    values, reference = {1: 1.0, 2: 0.0, 3: 0.0, 4: 0.0, 5: 0.0}, dict.fromkeys(range(1, 6), 0.0)
    gap = paired_difference(values, reference, "bootstrap")
    assert gap == paired_difference(values, reference, "bootstrap")
    assert gap is not None
    low, high = (stats.binom.ppf(share, 5, 0.2) / 5 for share in (0.025, 0.975))
    assert (gap.low, gap.high) == pytest.approx((low, high))


@pytest.mark.parametrize("interval", ["t", "bootstrap"])
def test_one_seed_equal_differences_and_infinite_ones_have_no_interval(interval: str) -> None:
    gaps = [
        paired_difference(values, {1: 0.25, 2: 0.5}, interval)  # type: ignore[arg-type]
        for values in ({1: 0.5}, {1: 0.5, 2: 0.75 + 1e-15}, {1: 0.5, 2: float("inf")}, {3: 0.5})
    ]
    assert gaps[0] == Difference(0.25, None, None, 1)
    assert gaps[1] is not None
    assert (gaps[1].low, gaps[1].high, gaps[1].seeds) == (None, None, 2), "what differs by rounding alone is equal"
    assert gaps[2] == Difference(float("inf"), None, None, 2)
    assert gaps[3] is None
    assert not any(gap.excludes_zero for gap in gaps if gap)


def test_the_mark_is_set_on_either_side_of_zero_and_not_on_it() -> None:
    intervals = [(0.001, 0.2), (-0.2, -0.001), (0.0, 0.1), (-0.1, 0.1)]
    assert [Difference(0.1, low, high, 3).excludes_zero for low, high in intervals] == [True, True, False, False]
    assert Difference(-0.1, -0.2, -0.001, 3).text() == "−0.100 [−0.200, −0.001]*"


def test_over_many_samples_the_t_interval_holds_the_truth_19_times_in_20() -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(1000):
        values = dict(enumerate(rng.normal(0.3, 1.0, 5)))
        gap = paired_difference(values, dict.fromkeys(range(5), 0.0))
        assert gap is not None
        assert gap.low is not None
        assert gap.high is not None
        found.append(gap.low <= 0.3 <= gap.high)
    assert np.mean(found) == pytest.approx(0.95, abs=0.025)
