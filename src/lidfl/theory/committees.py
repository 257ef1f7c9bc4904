"""Committees: how often voters drawn at random lack an honest quota, and how many voters are enough.

Committees of (q + 1)j to (q + 1)j + q voters have the same quota and are called block j. Within a block the chance
of failure falls as the committee grows; at the start of the next block it jumps up. It follows that

- the smallest safe committee lies in the first block whose largest committee is safe;
- if block j is the one from which on every block's smallest committee is safe, then the size from which on all
  committees are safe lies in block j − 1.

Both blocks are found by bisection, which needs all unsafe blocks to come before all safe ones. For δ ≤ 1/2 and a
normal distribution they do: a committee of v is unsafe if z·sd(v), with z ≥ 0, exceeds the distance from the quota
to the mean. This distance is linear in v and the standard deviation sd(v) is concave, so they cross only once. But
the distribution is not normal when few clients are in the committee, or few are left out of it, so blocks at both
ends are tried one by one. Tests compare with brute force.
"""

from collections.abc import Callable

import scipy  # scipy.stats takes a second to import and is loaded when first used

from lidfl.errors import LidflError
from lidfl.theory.votes import Electorate, Size

SCANNED_BLOCKS = 64
"""How many blocks at an end are tried one by one; bisection does the rest."""


def committee_failure(electorate: Electorate, voters: int) -> float:
    """Pr{H < quota} for H honest members among v drawn without replacement: the hypergeometric tail.

    scipy's `cdf` keeps its digits down to 1e-300, while its `logcdf` loses some for millions of clients.
    """
    m, k = electorate.num_clients, electorate.num_honest
    return float(scipy.stats.hypergeom.cdf(electorate.quota(voters) - 1, m, k, voters))


def committee_size(electorate: Electorate, delta: float) -> Size | None:
    """How many voters, drawn anew, hold an honest quota with probability 1 − δ; None if not even all clients do.

    The top of this file says how the size is found.
    """
    if delta > 0.5:
        raise LidflError(f"a committee's chance of failure must be at most 0.5, not {delta:g}")
    block, everyone = electorate.list_size + 1, electorate.num_clients

    def safe(voters: int) -> bool:
        return committee_failure(electorate, min(voters, everyone)) <= delta

    if not safe(everyone):
        return None
    last = everyone // block + 1  # this block begins with more than everyone, which counts as everyone
    end = _first(lambda j: safe(block * j + block - 1), last)
    start = _from_on(lambda j: safe(block * j), last)
    return Size(
        smallest=_bisect(safe, block * end, min(block * end + block - 1, everyone)),
        onwards=_bisect(safe, block * (start - 1), min(block * start - 1, everyone)),
    )


def _first(holds: Callable[[int], bool], last: int) -> int:
    """The first j that holds, given that `last` does: one by one at first, then by bisection."""
    looked = min(SCANNED_BLOCKS, last)
    for j in range(looked):
        if holds(j):
            return j
    return _bisect(holds, looked, last)


def _from_on(holds: Callable[[int], bool], last: int) -> int:
    """The j > 0 from which on all hold: one by one at both ends, by bisection between."""
    high = max(0, last - SCANNED_BLOCKS)
    for j in range(last, high - 1, -1):
        if not holds(j):
            return j + 1
    found = _bisect(holds, min(SCANNED_BLOCKS, high), high)
    while holds(found - 1):
        found -= 1
    return found


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first number from `low` to `high` that holds, if all after it do too; `high` is taken to hold."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high
