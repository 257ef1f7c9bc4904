"""Which few rows to remove so that no two that are left conflict: the vertex covers behind MDA.

A graph is a list of bit masks: bit j of mask i says that rows i and j conflict.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache


@cache
def branches(f: int) -> int:
    """How many branches a search for a cover of f rows has at most.

    A row with three conflicts or more either goes, or stays and all of those go; with fewer there is no choice.
    """
    return 1 if f < 3 else branches(f - 1) + branches(f - 3)


def has_cover(graph: Sequence[int], alive: int, size: int) -> bool:
    """Whether removing at most `size` of the rows that are alive leaves no conflict.

    >>> path = [0b010, 0b101, 0b010]
    >>> has_cover(path, 0b111, 1), has_cover(path, 0b111, 0)
    (True, False)
    """
    if size < 0:
        return False
    degrees = {row: (graph[row] & alive).bit_count() for row in range(len(graph)) if alive >> row & 1}
    busiest = max(degrees, key=degrees.__getitem__, default=-1)
    degree = degrees.get(busiest, 0)
    if degree == 0:
        return True
    if size * degree * 2 < sum(degrees.values()):  # no row settles more than `degree` conflicts
        return False
    if degree > 2:
        without = has_cover(graph, alive & ~(1 << busiest), size - 1)
        return without or has_cover(graph, alive & ~graph[busiest] & ~(1 << busiest), size - degree)
    # Paths and cycles: next to the end of a path, or anywhere in a cycle, some smallest cover has that row.
    ends = [row for row, count in degrees.items() if count == 1]
    goes = graph[ends[0]] & alive if ends else 1 << busiest
    return has_cover(graph, alive & ~goes, size - 1)


def first_independent(graph: Sequence[int], size: int) -> list[int]:
    """So many rows without a conflict, the first in lexicographic order; there must be such rows."""
    alive, kept = (1 << len(graph)) - 1, 0
    for row in range(len(graph)):
        if alive >> row & 1 and kept.bit_count() < size:
            rest = alive & ~graph[row]
            spare = rest.bit_count() - size
            if spare >= 0 and has_cover(graph, rest, spare):
                alive, kept = rest, kept | 1 << row
            else:
                alive &= ~(1 << row)
    return [row for row in range(len(graph)) if kept >> row & 1]
