"""What rules compute with: never more of a wide copy than a block of columns, and never an overflow.

Most rules need no more of the updates than their Gram matrix, n × n in double precision, and one weighted mean at
the end: two passes over the data, however many iterations lie between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lidfl.lazily import torch
from lidfl.types import Parameters, Updates

Square = NDArray[np.float64]
"""Something of every pair of updates, shape (updates, updates)."""

WIDE = 1 << 13
"""Columns in double precision at a time."""
CACHED = 1 << 18
"""Values to sort at a time: as many as a core's own cache holds."""

Rule = TypeVar("Rule", bound=Callable[..., "Parameters"])
Grouping = TypeVar("Grouping", bound=Callable[..., list[NDArray[np.int64]]])


def sound(rule: Rule) -> Rule:
    """A rule that leaves out rows that are not finite; where none is, nothing moves."""

    @wraps(rule)
    def guarded(updates: Updates, **options: object) -> Parameters:
        usable = updates[finite_rows(updates)]
        return rule(usable, **options) if len(usable) else updates.new_zeros(updates.shape[1])

    return guarded  # type: ignore[return-value]


def sound_groups(rule: Grouping) -> Grouping:
    """The same for a rule that returns groups of rows: none of them has a row that is not finite."""

    @wraps(rule)
    def guarded(updates: Updates, **options: object) -> list[NDArray[np.int64]]:
        usable = finite_rows(updates)
        if isinstance(usable, slice):
            return rule(updates, **options)
        rows = np.flatnonzero(usable.cpu().numpy())
        return [rows[group] for group in rule(updates[usable], **options)] if len(rows) else [rows]

    return guarded  # type: ignore[return-value]


def finite_rows(updates: Updates) -> slice | torch.Tensor:
    """Which rows are finite; all of them as a slice, since then nothing has to be copied."""
    # A finite norm has finite entries, and norms come at the speed of memory; entries are looked at where in doubt.
    doubtful = ~torch.linalg.vector_norm(updates, dim=1).isfinite()
    broken = torch.zeros_like(doubtful)
    for row in doubtful.nonzero().flatten().tolist():
        broken[row] = not updates[row].isfinite().all()
    return ~broken if broken.any() else slice(None)


def gram(updates: Updates) -> Square:
    """uᵢ·uⱼ of all pairs, in double precision: no square of a finite float32 overflows there."""
    total = torch.zeros(len(updates), len(updates), dtype=torch.double, device=updates.device)
    for part in torch.split(updates, WIDE, dim=1):
        wide = part.double()
        total.addmm_(wide, wide.T)  # NumPy would take half the products, and with two threads twenty times as long
    return np.asarray(((total + total.T) / 2).cpu().numpy())


def pairwise(products: Square) -> Square:
    """‖uᵢ − uⱼ‖² of all pairs, from their Gram matrix."""
    squares = products.diagonal()
    with np.errstate(invalid="ignore"):
        distances = np.maximum(squares[:, None] + squares[None, :] - 2 * products, 0)
    np.fill_diagonal(distances, 0)
    return distances


def norms(updates: Updates) -> NDArray[np.float64]:
    """‖uᵢ‖ of each row; where squares of float32 overflow, in double precision."""
    found = torch.linalg.vector_norm(updates, dim=1)
    if not found.isfinite().all():
        found = torch.cat([torch.linalg.vector_norm(row.double(), dim=1) for row in torch.split(updates, 1)])
    return np.asarray(found.double().cpu().numpy())


def distances_to(updates: Updates, point: Parameters) -> NDArray[np.float64]:
    """‖uᵢ − p‖² of each row."""
    total = np.zeros(len(updates))
    parts = zip(torch.split(updates, WIDE, dim=1), torch.split(point, WIDE), strict=True)
    for part, there in parts:
        apart = torch.linalg.vector_norm(part - there, dim=1)
        if not 1e-15 < float(apart.max()) < torch.inf:  # where squares of float32 are lost, in double precision
            apart = torch.linalg.vector_norm(part.double() - there.double(), dim=1)
        total += apart.double().square().cpu().numpy()
    return total


def weighted_mean(updates: Updates, weights: NDArray[np.float64]) -> Parameters:
    """Σ wᵢ uᵢ for weights from 0 that sum to at most 1."""
    mean = torch.mv(updates.T, torch.from_numpy(weights).to(updates))
    return mean if mean.isfinite().all() else _careful_mean(updates, weights)


def _careful_mean(updates: Updates, weights: NDArray[np.float64]) -> Parameters:
    """The same of updates so large that rounding carries their mean out of range."""
    exact = torch.from_numpy(weights).to(updates.device)
    top = torch.finfo(updates.dtype).max
    parts = [torch.mv(part.double().T, exact) for part in torch.split(updates, WIDE, dim=1)]
    return torch.cat([part.clamp(-top, top).to(updates.dtype) for part in parts])


def shrinking(lengths: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """By which factors, up to 1, vectors are brought to lengths of at most `bound`."""
    return np.divide(bound, lengths, out=np.ones_like(lengths), where=lengths > bound)


def mean_of(updates: Updates, rows: NDArray[np.int64]) -> Parameters:
    """The mean of some rows, each counted once."""
    weights = np.zeros(len(updates))
    weights[rows] = 1 / len(rows)
    return weighted_mean(updates, weights)


def by_column(updates: Updates, reduce: Callable[[NDArray[Any]], NDArray[np.float64]]) -> Parameters:
    """One number from the sorted values of each coordinate; `reduce` is given one coordinate a row."""
    reduced = np.concatenate([reduce(block) for block in _sorted_blocks(updates)])
    return torch.from_numpy(reduced).to(updates)


def _sorted_blocks(updates: Updates) -> Iterator[NDArray[Any]]:
    # A coordinate's values next to each other: NumPy sorts short runs with vector instructions.
    for part in torch.split(updates, max(1, CACHED // len(updates)), dim=1):
        block = np.array(part.cpu().numpy().T, order="C", copy=True)
        block.sort(axis=1)
        yield block
