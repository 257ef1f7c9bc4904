"""How many bad updates each rule is made for, what is lost beyond, and what a rule that searches may cost.

Beyond its range a rule still runs, with f clipped to the largest value that it is made for: that shows what becomes
of it. What no longer holds is told before round one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import comb
from typing import Any, TypeAlias

from lidfl.errors import LidflError
from lidfl.methods.aggregators.covers import branches

Most: TypeAlias = Callable[[int], int]
"""From the number of updates to the number of bad ones that a rule is made for."""


def below_half(n: int) -> int:
    """The largest f < n/2."""
    return max(0, (n - 1) // 2)


def krum_range(n: int) -> int:
    """The largest f with n ≥ 2f + 3."""
    return max(0, (n - 3) // 2)


def bulyan_range(n: int) -> int:
    """The largest f with n ≥ 4f + 3."""
    return max(0, (n - 3) // 4)


@dataclass(frozen=True)
class Limit:
    """What a rule promises, and up to where."""

    promise: str
    """What holds within the range."""
    most: Most = below_half
    needs: str = "f < n/2"
    clips: bool = True
    """Whether it has an f, which is clipped."""
    cost: Callable[[int, int], int] | None = None
    """From n and f to how many cases a search may have to look at."""
    budget: int = 0


NEAR_THE_MEAN = "that its result is close to the honest mean"
WITHIN_RANGE = "that each coordinate stays within the honest values"
MAJORITY = "that the larger cluster is the honest one"

LIMITS: dict[str, Limit] = {
    "cwm": Limit(WITHIN_RANGE, clips=False),
    "gm": Limit(NEAR_THE_MEAN, clips=False),
    "krum": Limit("that what it picks is close to the honest updates", krum_range, "n ≥ 2f + 3", clips=False),
    "cclip": Limit(NEAR_THE_MEAN, clips=False),
    "trimmed_mean": Limit(WITHIN_RANGE),
    "meamed": Limit(WITHIN_RANGE),
    "multi_krum": Limit("that what it picks is close to the honest updates", krum_range, "n ≥ 2f + 3"),
    "bulyan": Limit("that each coordinate is close to honest values", bulyan_range, "n ≥ 4f + 3"),
    "mda": Limit(NEAR_THE_MEAN, cost=lambda _n, f: branches(f), budget=20_000),
    "monna": Limit("that most of the trusted row's neighbours are honest"),
    "geometric_median": Limit(NEAR_THE_MEAN, clips=False),
    "mca": Limit("that the densest place is among the honest updates", clips=False),
    "cge": Limit("that honest updates outnumber bad ones among the shortest"),
    "caf": Limit(NEAR_THE_MEAN),
    "smea": Limit(NEAR_THE_MEAN, cost=comb, budget=20_000),
    "dnc": Limit("that most of what it keeps is honest"),
    "signguard": Limit(MAJORITY, clips=False),
    "flame": Limit(MAJORITY, clips=False),
    "nnm": Limit("that most of an honest update's neighbours are honest"),
    "arc": Limit("that an honest update sets the bound"),
}
"""By name; rules without an entry promise nothing about f."""


def tolerable(rule: str, n: int, num_honest: int, f: int) -> int:
    """The f that a rule runs with among n updates: all but the honest ones, or as given; clipped to its range."""
    return min(asked(n, num_honest, f), LIMITS[rule].most(n))


def asked(n: int, num_honest: int, f: int) -> int:
    """How many of n updates may be bad, before anything is clipped."""
    return max(0, n - num_honest) if f < 0 else f


def caution(rule: str, options: Mapping[str, Any], n: int, num_honest: int) -> str | None:
    """One sentence if a rule is used beyond its range."""
    limit = LIMITS.get(rule)
    f = asked(n, num_honest, options.get("f", -1))
    if limit is None or f <= limit.most(n):
        return None
    runs = f"; it runs with f = {limit.most(n)}" if limit.clips else ""
    return (
        f"{rule} is made for {limit.needs}, of {n} updates at most {limit.most(n)}, and {f} may be bad here: "
        f"{limit.promise} is no longer guaranteed{runs}; lidfl and lidfl-ranked are made for a bad majority"
    )


def refuse_endless(rule: str, n: int, num_honest: int, f: int = -1) -> None:
    """Refuse a search that would not end in good time, with the number of cases."""
    limit = LIMITS.get(rule)
    if limit is None or limit.cost is None:
        return
    cases = limit.cost(n, tolerable(rule, n, num_honest, f))
    if cases > limit.budget:
        raise LidflError(
            f"{rule} would have to look at up to {cases:,} cases for {n} updates, more than {limit.budget:,}; "
            f"give a smaller f ({rule}:f=…), or take nnm|trimmed_mean, which needs no search"
        )
