"""What a round goes by: the rules, and what it has gathered when it makes its candidates."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from lidfl.lazily import torch
from lidfl.protocol.messages import Choose, ModelList, Proposed, Trained
from lidfl.types import Ballot, Client, Models, Parameters, Position, Updates


class Elect(Protocol):
    """A bound election: which candidates go."""

    def __call__(self, ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> list[Position]:
        """The positions that go, so that `seats` stay."""
        ...


Asking: TypeAlias = "Generator[Choose, Mapping[Client, Ballot], list[Proposed]]"
"""A proposal that asks jurors first: it yields a request and is sent the usable ballots."""
Propose: TypeAlias = "Callable[[Gathered], list[Proposed] | Asking]"
"""A proposal: from what a round has gathered to new models."""


class Canonical(Protocol):
    """Brings models into a form that does not depend on who sent them."""

    def __call__(self, models: Models, parents: Models | None = None) -> Models:
        """The same functions, one a row, in the one form; near those that they were trained from, if told."""
        ...


@dataclass(frozen=True)
class Rules:
    """How models are trained and voted on; as they stand, the paper's but for the proposal and the election."""

    proposals: tuple[Propose, ...]
    elect: Elect
    ranked: bool = False
    """Whether ballots rank all candidates, or name one."""
    candidates: int = 1
    """How many new models a proposal of single clients or of jurors makes."""
    every_group: bool = False
    """Whether all groups of an aggregator become candidates, or one of them drawn at random."""
    favourite_parents: bool = False
    """Whether a worker trains the model that it likes best, or one that is drawn."""
    same_parent: bool = False
    """Whether all workers are given the same model, so that their updates can be compared."""
    workers: int | None = 1
    """How many train; None for all."""
    voters: int | None = None
    """How many vote; None for all."""
    seats: int | None = None
    """How many models the list is to have; None for as many as it has."""
    num_honest: int = 1
    """How many of those who train are taken to be honest."""
    remembers: str = ""
    """What is kept of each client from round to round: nothing, its `last` update, or the `sum` of all of them."""
    canonical: Canonical | None = None
    """How models are brought into one form as they enter; None if they are taken as they are."""


@dataclass(frozen=True)
class Gathered:
    """What a round knows when it makes its candidates."""

    round_index: int
    models: ModelList
    trained: Mapping[Client, Trained]
    clients: Sequence[Client]
    """Whom a proposal may ask."""
    rng: np.random.Generator
    rules: Rules

    def grown(self, client: Client) -> Parameters:
        """The model that a client has trained."""
        sent = self.trained[client]
        return self.models.parameters[sent.parent] + sent.update

    def by_parent(self) -> Iterator[tuple[Position, list[Client], Updates]]:
        """For each model that was trained: who trained it, and their updates."""
        for parent in sorted({sent.parent for sent in self.trained.values()}):
            senders = [client for client, sent in self.trained.items() if sent.parent == parent]
            yield parent, senders, torch.stack([self.trained[client].update for client in senders])
