"""An aggregator with what is done to updates before it, written `nnm|bucketing:size=2|krum`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.errors import LidflError
from lidfl.lazily import torch
from lidfl.methods.aggregators import Groups, aggregator, means_and_members
from lidfl.methods.aggregators.blocks import finite_rows, weighted_mean
from lidfl.methods.aggregators.limits import caution, refuse_endless
from lidfl.methods.preaggregators import Weights, preaggregator
from lidfl.registry import Bound
from lidfl.types import Parameters, Updates

FEW = 8
"""Up to so many updates a weighted mean is computed by itself; means of more come from one matrix product."""


@dataclass(frozen=True)
class Pipeline:
    """Pre-aggregators, and the aggregator at the end."""

    steps: tuple[Bound[Weights], ...]
    rule: Bound[Parameters | Groups]

    def candidates(
        self, updates: Updates, *, num_honest: int, rng: Generator, history: Updates | None = None
    ) -> list[tuple[Parameters, NDArray[np.int64]]]:
        """What the rule finds: vectors, each with the rows of the updates that went into it.

        `history` holds the sums of all updates of the same clients, where they are kept; only a rule that sees
        clients' updates as they are can make use of it.
        """
        if not self.steps:
            known = dict(num_honest=num_honest, rng=rng, history=history)
            return means_and_members(self.rule(updates, **known), updates)
        usable = finite_rows(updates)
        holds = np.eye(len(updates), dtype=bool)[usable if isinstance(usable, slice) else usable.cpu().numpy()]
        updates = updates[usable]
        if len(updates) == 0:
            return [(updates.new_zeros(updates.shape[1]), np.arange(0))]
        for step in self.steps:
            weights = step(updates, num_honest=num_honest, rng=rng)
            # No more of the new updates are bad than were of the old ones.
            num_honest = max(1, len(weights) - max(0, len(updates) - num_honest))
            updates, holds = mixed(updates, weights), (weights > 0) @ holds
        found = means_and_members(self.rule(updates, num_honest=num_honest, rng=rng), updates)
        return [(vector, np.flatnonzero(holds[members].any(0))) for vector, members in found]

    @property
    def remembers(self) -> bool:
        """Whether its rule looks at sums over rounds."""
        return not self.steps and bool(self.rule.options.get("memory"))

    def refuse_memory(self) -> None:
        """Refuse a rule that is to look at sums over rounds where nobody keeps them."""
        if self.rule.options.get("memory"):
            name = self.rule.name
            raise LidflError(f"{name}:memory=true works alone, as the method {name}:memory=true; leave it out")

    def vector(self, updates: Updates, *, num_honest: int, rng: Generator) -> Parameters:
        """What the rule finds, or the first of it."""
        return self.candidates(updates, num_honest=num_honest, rng=rng)[0][0]

    def caution(self, n: int, num_honest: int) -> str | None:
        """One sentence about the first part that is used beyond its range among n updates."""
        found = (
            caution(part.name, part.options, rows, honest) for part, rows, honest in self._parts(n, num_honest)
        )
        return next((sentence for sentence in found if sentence), None)

    def refuse_endless(self, n: int, num_honest: int) -> None:
        """Refuse a rule that would have to search for too long among n updates."""
        for part, rows, honest in self._parts(n, num_honest):
            refuse_endless(part.name, rows, honest, part.options.get("f", -1))

    def _parts(self, n: int, num_honest: int) -> list[tuple[Bound[Weights] | Bound[Parameters | Groups], int, int]]:
        """Every part, with how many updates it sees and how many of them are good."""
        parts: list[tuple[Bound[Weights] | Bound[Parameters | Groups], int, int]] = []
        for step in self.steps:
            parts.append((step, n, num_honest))
            left = -(-n // max(1, step.options.get("size", 2))) if step.name == "bucketing" else n
            n, num_honest = left, max(1, left - max(0, n - num_honest))
        return [*parts, (self.rule, n, num_honest)]


def mixed(updates: Updates, weights: Weights) -> Updates:
    """New updates from weights of the old ones."""
    if len(weights) == len(updates) and np.array_equal(weights, np.diag(weights.diagonal())):  # each only scaled
        return updates * torch.from_numpy(weights.diagonal().copy()).to(updates)[:, None]
    if np.count_nonzero(weights, axis=1).max() > FEW:
        new = torch.from_numpy(weights).to(updates) @ updates
    else:
        new = updates.new_zeros(len(weights), updates.shape[1])
        for to, held in zip(*weights.nonzero(), strict=True):
            new[to].add_(updates[held], alpha=float(weights[to, held]))
    if not isinstance(finite_rows(new), slice):  # rounding carried the largest updates out of range
        for row, to in zip(weights, new, strict=True):
            to.copy_(weighted_mean(updates, row))
    return new


def resolve_pipeline(spec: str) -> Pipeline:
    """The aggregator that a spec names, with the pre-aggregators before it."""
    *before, last = spec.split("|")
    pipeline = Pipeline(tuple(preaggregator.resolve(step) for step in before), aggregator.resolve(last))
    if before:
        pipeline.refuse_memory()
    return pipeline


def is_pipeline(spec: str) -> bool:
    """Whether a spec is meant as an aggregator, alone or after others."""
    *before, last = (part.partition(":")[0] for part in spec.split("|"))
    if last in preaggregator and last not in aggregator:
        raise LidflError(f"'{last}' goes before an aggregator; write {spec}|krum, or another")
    return bool(before) or last in aggregator
