"""Electorates to try, and exact answers found without the package: term by term, or by looking at every size."""

import math
from fractions import Fraction

from hypothesis import strategies as st

from lidfl.theory.votes import Electorate, Size

PAPER = Electorate.smallest(35, 14)


def binomial_tail(most: int, trials: int, chance: float) -> Fraction:
    """Pr{Bin ≤ most}, term by term in exact arithmetic."""
    p = Fraction(chance)
    return sum(
        (math.comb(trials, x) * p**x * (1 - p) ** (trials - x) for x in range(min(most, trials) + 1)), Fraction(0)
    )


def hypergeometric_tail(most: int, electorate: Electorate, drawn: int) -> Fraction:
    """Pr{honest members ≤ most}, by counting committees."""
    m, k = electorate.num_clients, electorate.num_honest
    ways = sum(math.comb(k, x) * math.comb(m - k, drawn - x) for x in range(min(most, drawn) + 1))
    return Fraction(ways, math.comb(m, drawn))


@st.composite
def electorates(draw: st.DrawFn, most: int = 60) -> Electorate:
    """Any federation with the shortest safe list; half of them only just above the quota."""
    clients = draw(st.integers(1, most))
    honest = draw(st.integers(1, clients))
    if draw(st.booleans()):
        honest = min(clients, clients // (draw(st.integers(1, 8)) + 1) + 1)
    return Electorate.smallest(clients, honest)


def brute_force(fails: list[bool]) -> Size:
    """The smallest size that does not fail, and that from which on none does."""
    return Size(fails.index(False), max(size for size, bad in enumerate(fails) if bad) + 1)
