"""Proposals: from what clients sent to the candidates of a vote.

Any proposal is safe, since the voters judge it; so several may be combined, as in `jurors+rknn+average`. A proposal
is one function of what a round has `Gathered`. It returns the new models, or it is itself a generator that asks
clients first, as `jurors` is. Every aggregator is a proposal too, alone or after pre-aggregators (`nnm|krum`): its
vector, or the means of its groups.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lidfl.errors import LidflError
from lidfl.lazily import torch
from lidfl.methods.aggregators import Groups, aggregator, means_and_members
from lidfl.methods.pipelines import Pipeline, is_pipeline, resolve_pipeline
from lidfl.protocol import Asking, Choose, Gathered, Propose, Proposed, all_finite, same, sample
from lidfl.registry import Registry, within
from lidfl.types import Client, Parameters, Updates


class Aggregate(Protocol):
    """A bound aggregator."""

    def __call__(self, updates: Updates, *, num_honest: int, rng: np.random.Generator) -> Parameters | Groups:
        """Turn updates, one a row, into one update or groups of rows."""
        ...


proposal: Registry[list[Proposed] | Asking] = Registry("proposal", given=("gathered",))


@proposal
def client(gathered: Gathered) -> list[Proposed]:
    """The paper's step 3: what a client trained is a candidate as it is."""
    senders = list(gathered.trained)
    if len(senders) > gathered.rules.candidates:
        drawn = gathered.rng.choice(len(senders), gathered.rules.candidates, replace=False)
        senders = [senders[row] for row in sorted(drawn.tolist())]
    return [Proposed((gathered.trained[sender].parent,), gathered.grown(sender), (sender,)) for sender in senders]


@proposal
@within(stride=(0, 1000))
def jurors(gathered: Gathered, *, stride: float = 1.0) -> Asking:
    """Sampled clients each pick the k trained models best on their own data; the mean of each choice.

    The choice of an honest juror leaves out what harms its data, whoever sent it and however close it lies. With
    another `stride`, each choice is also proposed so many times as far from the models that it was trained from:
    voters will tell whether that is too far.
    """
    senders = list(gathered.trained)
    if not senders:
        return []
    pool = torch.stack([gathered.grown(sender) for sender in senders])
    asked = sample(gathered.clients, gathered.rules.candidates, gathered.rng)
    ranks = min(gathered.rules.num_honest, len(senders))
    choices = yield Choose(gathered.round_index, pool, asked, ranks, gathered.models.parameters)
    chosen = [[senders[row] for row in rows] for rows in choices.values() if rows]
    return [_mean_of(gathered, them, reach) for reach in dict.fromkeys((1.0, stride)) for them in chosen]


def _mean_of(gathered: Gathered, senders: Sequence[Client], stride: float) -> Proposed:
    """The mean of what clients have trained, or a point beyond it."""
    parents = [gathered.trained[sender].parent for sender in senders]
    mean = torch.stack([gathered.grown(sender) for sender in senders]).mean(0)
    if stride != 1:
        mean = mean.lerp(gathered.models.parameters[parents].mean(0), 1 - stride)
    return Proposed(tuple(sorted(set(parents))), mean, tuple(senders))


@proposal
def average(gathered: Gathered) -> list[Proposed]:
    """The mean of the list as it stands: several good lines become one."""
    models = gathered.models.parameters
    mean = models.mean(0)
    if not all_finite(mean):
        return []
    spread = float((models - mean).abs().max())
    if any(same(mean, model, spread) for model in models):
        return []
    return [Proposed(tuple(range(len(gathered.models))), mean, ())]


def from_aggregator(aggregate: Aggregate | Pipeline, gathered: Gathered) -> list[Proposed]:
    """For each parent, an aggregator's vector, or one or all of its groups' means (paper, appendix B.6)."""
    proposed = []
    for parent, senders, updates in gathered.by_parent():
        found = _candidates(aggregate, updates, senders, gathered)
        if not gathered.rules.every_group:
            found = [found[int(gathered.rng.integers(len(found)))]]
        for update, rows in found:
            members = tuple(senders[row] for row in rows)
            proposed.append(Proposed((parent,), gathered.models.parameters[parent] + update, members))
    return proposed


def _candidates(
    aggregate: Aggregate | Pipeline, updates: Updates, senders: Sequence[Client], gathered: Gathered
) -> list[tuple[Parameters, NDArray[np.int64]]]:
    """What an aggregator finds, and the rows that went into it."""
    if isinstance(aggregate, Pipeline):
        memory = gathered.models.memory if aggregate.remembers else None
        history = None if memory is None else memory[list(senders)]
        honest = gathered.rules.num_honest
        return aggregate.candidates(updates, num_honest=honest, rng=gathered.rng, history=history)
    return means_and_members(aggregate(updates, num_honest=gathered.rules.num_honest, rng=gathered.rng), updates)


def resolve_proposals(spec: str) -> tuple[Propose, ...]:
    """The proposals that a spec such as `jurors+rknn` names, in its order."""
    return tuple(_resolve(part) for part in parts_of(spec))


def parts_of(spec: str) -> list[str]:
    """The specs that a spec such as `jurors+nnm|krum` combines."""
    return re.split(r"\+(?=[a-z])", spec)


def pipelines_of(spec: str) -> list[Pipeline]:
    """The aggregators among the parts of a spec, with what goes before them."""
    return [resolve_pipeline(part) for part in parts_of(spec) if is_pipeline(part)]


def _resolve(part: str) -> Propose:
    name = part.partition(":")[0]
    if name in proposal:
        return proposal.resolve(part)
    if is_pipeline(part):
        return partial(from_aggregator, resolve_pipeline(part))
    raise LidflError(f"unknown proposal '{name}'; choose from {', '.join([*proposal, *aggregator])}")
