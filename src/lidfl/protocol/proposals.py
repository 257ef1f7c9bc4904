"""Proposals: from what clients sent to the candidates of a vote.

Any proposal is safe, since the voters judge it; so several may be combined, as in `jurors+rknn+average`. A proposal
is one function of what a round has `Gathered`. It returns the new models, or it is itself a generator that asks
clients first, as `jurors` is. Every aggregator is a proposal too: its mean, or the mean of its groups.
"""

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
import torch

from lidfl.aggregators import Groups, aggregator, proposals
from lidfl.errors import LidflError
from lidfl.protocol.messages import Child, Choose, ModelList, Replies, Request, Trained
from lidfl.protocol.replies import valid_ballots
from lidfl.registry import Registry
from lidfl.types import Client, Parameters, Position, Updates

ROUNDING = 1e-5
"""By how much, relative to the largest parameter, two models may differ and count as one."""


@dataclass
class Gathered:
    """What a round knows when it makes its candidates."""

    round_index: int
    models: ModelList
    trained: Mapping[Client, Trained]
    clients: Sequence[Client]
    """Whom a proposal may ask."""
    rng: np.random.Generator
    num_honest: int = 1
    """How many of those who trained are taken to be honest."""
    candidates: int = 1
    """How many a proposal of single clients or of jurors makes."""
    every_group: bool = False
    """Whether all groups of an aggregator become candidates, or one of them drawn at random."""
    rejected: Counter[str] = field(default_factory=Counter)

    def grown(self, client: Client) -> Parameters:
        """The model that a client has trained."""
        sent = self.trained[client]
        return self.models.parameters[sent.parent] + sent.update

    def by_parent(self) -> Iterator[tuple[Position, list[Client], Updates]]:
        """For each model that was trained: who trained it, and their updates."""
        for parent in sorted({sent.parent for sent in self.trained.values()}):
            senders = [client for client, sent in self.trained.items() if sent.parent == parent]
            yield parent, senders, torch.stack([self.trained[client].update for client in senders])


Asking: TypeAlias = Generator[Request, Replies, list[Child]]
Propose: TypeAlias = Callable[[Gathered], "list[Child] | Asking"]


class Aggregate(Protocol):
    """A bound aggregator."""

    def __call__(self, updates: Updates, *, num_honest: int, rng: np.random.Generator) -> Parameters | Groups:
        """Turn updates, one a row, into one update or groups of rows."""
        ...


proposal = Registry["list[Child] | Asking"]("proposal")


@proposal
def client(gathered: Gathered) -> list[Child]:
    """The paper's step 3: what a client trained is a candidate as it is."""
    senders = list(gathered.trained)
    if len(senders) > gathered.candidates:
        drawn = gathered.rng.choice(len(senders), gathered.candidates, replace=False)
        senders = [senders[row] for row in sorted(drawn.tolist())]
    return [Child((gathered.trained[sender].parent,), gathered.grown(sender), (sender,)) for sender in senders]


@proposal
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
    asked = sample(gathered.clients, gathered.candidates, gathered.rng)
    request = Choose(gathered.round_index, pool, asked, min(gathered.num_honest, len(senders)))
    choices, rejected = valid_ballots((yield request), request)
    gathered.rejected += rejected
    chosen = [[senders[row] for row in rows] for rows in choices.values() if rows]
    return [_mean_of(gathered, them, stride) for stride in dict.fromkeys((1.0, stride)) for them in chosen]


def _mean_of(gathered: Gathered, senders: Sequence[Client], stride: float) -> Child:
    """The mean of what clients have trained, or a point beyond it."""
    parents = [gathered.trained[sender].parent for sender in senders]
    mean = torch.stack([gathered.grown(sender) for sender in senders]).mean(0)
    if stride != 1:
        mean = mean.lerp(gathered.models.parameters[parents].mean(0), 1 - stride)
    return Child(tuple(sorted(set(parents))), mean, tuple(senders))


@proposal
def average(gathered: Gathered) -> list[Child]:
    """The mean of the list as it stands: several good lines become one."""
    mean = gathered.models.parameters.mean(0)
    if any(same(mean, model) for model in gathered.models.parameters):
        return []
    return [Child(tuple(range(len(gathered.models))), mean, ())]


def from_aggregator(aggregate: Aggregate, gathered: Gathered) -> list[Child]:
    """For each parent, an aggregator's vector, or one or all of its groups' means (paper, appendix B.6)."""
    children = []
    for parent, senders, updates in gathered.by_parent():
        outcome = aggregate(updates, num_honest=gathered.num_honest, rng=gathered.rng)
        found = proposals(outcome, updates)
        if not gathered.every_group:
            found = [found[int(gathered.rng.integers(len(found)))]]
        for update, rows in found:
            members = tuple(senders[row] for row in rows)
            children.append(Child((parent,), gathered.models.parameters[parent] + update, members))
    return children


def resolve_proposals(spec: str) -> tuple[Propose, ...]:
    """The proposals that a spec such as `jurors+rknn` names, in its order."""
    return tuple(_resolve(part) for part in re.split(r"\+(?=[a-z])", spec))


def _resolve(part: str) -> Propose:
    name = part.partition(":")[0]
    if name in proposal:
        return proposal.resolve(part)
    if name in aggregator:
        return partial(from_aggregator, aggregator.resolve(part))
    raise LidflError(f"unknown proposal '{name}'; choose from {', '.join([*proposal, *aggregator])}")


def sample(clients: Sequence[Client], count: int, rng: np.random.Generator) -> tuple[Client, ...]:
    """So many distinct clients in ascending order; all of them if there are no more."""
    if count >= len(clients):
        return tuple(clients)
    return tuple(clients[index] for index in sorted(rng.choice(len(clients), count, replace=False).tolist()))


def propose(gathered: Gathered, proposals: Iterable[Propose]) -> Asking:
    """All candidates of all proposals, each once: equals would only split the votes of those who like them."""
    children: list[Child] = []
    for make in proposals:
        made = make(gathered)
        for child in made if isinstance(made, list) else (yield from made):
            if not any(same(child.parameters, other.parameters) for other in children):
                children.append(child)
    return children


def same(one: Parameters, other: Parameters) -> bool:
    """Whether two models are equal but for rounding: the mean of a group depends on the order of its members."""
    return torch.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * float(one.abs().max()))
