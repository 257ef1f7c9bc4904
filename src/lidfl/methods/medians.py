"""The median of each coordinate, by a sorting network over whole rows.

Sorting each column by itself strides through memory. A network compares rows instead, in an order that does not
depend on the values: every comparator is a `minimum` and a `maximum` of two vectors, which processors do at full
width. Comparators whose results do not reach the middle are left out.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from lidfl.lazily import torch
from lidfl.types import Parameters, Updates

COLUMNS = 1 << 16
"""Columns in work at a time: enough for torch to use two threads, few enough for the cache."""


class Comparator(NamedTuple):
    """Puts the smaller value of two rows into `low` and the larger into `high`, as far as they are needed."""

    low: int
    high: int
    needs_minimum: bool
    needs_maximum: bool


def coordinate_median(updates: Updates) -> Parameters:
    """The median of each column; of an even number of rows, the mean of the middle two."""
    count = len(updates)
    middle = (count // 2,) if count % 2 else (count // 2 - 1, count // 2)
    network = selection_network(count, middle)
    return torch.cat([_select(part, network, middle) for part in torch.split(updates, COLUMNS, dim=1)])


def _select(updates: Updates, network: tuple[Comparator, ...], middle: tuple[int, ...]) -> Parameters:
    """Run the network in place, on a copy; what a comparator frees is the next one's room."""
    rows = list(updates.clone().unbind(0))
    spare = torch.empty_like(rows[0])
    for low, high, needs_minimum, needs_maximum in network:
        first, second = rows[low], rows[high]
        if needs_minimum:
            rows[low], spare = torch.minimum(first, second, out=spare), first
        if needs_maximum:
            torch.maximum(first, second, out=second)
    if len(middle) == 1:
        return rows[middle[0]]
    return rows[middle[0]] / 2 + rows[middle[1]] / 2  # whose sum may be too large


@cache
def selection_network(count: int, wanted: tuple[int, ...]) -> tuple[Comparator, ...]:
    """The comparators of a sorting network that the wanted places depend on."""
    needed = set(wanted)
    kept = []
    for low, high in reversed(merge_sort_network(count)):
        if low in needed or high in needed:
            kept.append(Comparator(low, high, low in needed, high in needed))
            needed |= {low, high}
    return tuple(reversed(kept))


def merge_sort_network(count: int) -> list[tuple[int, int]]:
    """Batcher's odd-even merge sort: pairs of places to compare, in order (Knuth, volume 3, section 5.3.4)."""
    comparators = []
    block = 1
    while block < count:
        step = block
        while step >= 1:
            for start in range(step % block, count - step, 2 * step):
                comparators += [
                    (low, low + step)
                    for low in range(start, min(start + step, count - step))
                    if low // (2 * block) == (low + step) // (2 * block)
                ]
            step //= 2
        block *= 2
    return comparators
