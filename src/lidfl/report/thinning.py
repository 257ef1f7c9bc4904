"""Fewer rows to draw, chosen so that the picture stays true."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def every(rows: Sequence[T], limit: int) -> tuple[list[T], int]:
    """At most `limit` of the rows, evenly spaced and with the last one; and which fraction: every n-th."""
    step = max(1, -(-len(rows) // limit))
    return list(rows[::-1][::step][::-1]), step
