"""How sure one may be of a difference between two methods: the same seeds, pair by pair.

Two runs with one seed share data, dealing, who is Byzantine and the first model, so that the difference between
them varies less than each of them does. Its mean over seeds comes with an interval:

- `t`: mean ± t · s/√n, with s the sample's deviation of the differences and t the 0.975 quantile of Student's
  distribution with n − 1 degrees of freedom (Student 1908). Exact for normal differences at any n ≥ 2.
- `bootstrap`: the middle 95 % of means of n differences drawn with replacement (Efron 1979). It assumes no
  distribution, but never leaves the range of what was seen: of very few seeds it is too narrow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import Literal, TypeAlias

Interval: TypeAlias = Literal["t", "bootstrap"]
CONFIDENCE = 0.95
RESAMPLES = 9999
ROUNDING = 1e-12
"""Differences that are nearer to each other than this are equal."""
MARK = "*"
"""Stands beside a difference whose interval excludes zero."""


@dataclass(frozen=True)
class Difference:
    """By how much one method is better than another, over the seeds that both have."""

    mean: float
    low: float | None
    high: float | None
    """The ends of its interval; one seed has none, nor have differences that are all equal: they tell no spread."""
    seeds: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def text(self) -> str:
        """The mean, its interval and a mark, such as −0.008 [−0.015, −0.001]*."""
        interval = "" if self.low is None or self.high is None else f" [{signed(self.low)}, {signed(self.high)}]"
        return f"{signed(self.mean)}{interval}{MARK if self.excludes_zero else ''}"


def paired_difference(
    values: Mapping[int, float], reference: Mapping[int, float], interval: Interval = "t"
) -> Difference | None:
    """How far values lie from a reference's, both by seed, over the seeds that both have; None if there is none.

    >>> paired_difference({1: 0.5, 2: 0.75, 3: 0.25}, {1: 0.25, 2: 0.25}).mean
    0.375
    """
    gaps = [values[seed] - reference[seed] for seed in sorted(values.keys() & reference.keys())]
    if not gaps:
        return None
    if not all(map(isfinite, gaps)) or max(gaps) - min(gaps) < ROUNDING:
        return Difference(fmean(gaps), None, None, len(gaps))
    low, high = INTERVALS[interval](gaps)
    return Difference(fmean(gaps), low, high, len(gaps))


def t_interval(gaps: Sequence[float]) -> tuple[float, float]:
    """Student's interval of a mean."""
    from scipy.stats import t  # half a second, for those who compare

    half = float(t.ppf((1 + CONFIDENCE) / 2, len(gaps) - 1)) * stdev(gaps) / sqrt(len(gaps))
    return fmean(gaps) - half, fmean(gaps) + half


def bootstrap_interval(gaps: Sequence[float]) -> tuple[float, float]:
    """The bootstrap's interval of a mean; the draws are always the same."""
    import numpy as np
    from scipy.stats import bootstrap

    draws = np.random.default_rng(0)
    found = bootstrap(
        (gaps,),
        np.mean,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        random_state=draws,
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


INTERVALS = {"t": t_interval, "bootstrap": bootstrap_interval}


def signed(value: float) -> str:
    """A number with its sign, as people print it."""
    return f"{value:+.3f}".replace("-", "−")
