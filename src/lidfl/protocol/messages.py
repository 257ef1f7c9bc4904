"""What a round handles: the list of models, the requests to clients, their replies, and the record."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lidfl.lazily import torch
from lidfl.types import Ballot, Client, Models, Parameters, Position


@dataclass(frozen=True)
class Proposed:
    """A model that is proposed for the list: what it is made of, and by whom."""

    parents: tuple[Position, ...]
    """Where in the list the models stand that it was made from."""
    parameters: Parameters
    clients: tuple[Client, ...]
    """Whose updates it holds; none if the server made it of other models."""


@dataclass(frozen=True)
class ModelList:
    """The list L_t: one model a row, in order of birth."""

    parameters: Models
    ids: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    """The ids of the models that each was made from: one for a trained model, none for the initial list."""
    ages: tuple[int, ...]
    """How many votes each has survived."""
    next_id: int
    standing: Mapping[Client, tuple[int, ...]] = field(default_factory=dict)
    """Each voter's last ballot, by model id, as far as its models are still in the list."""
    memory: Models | None = None
    """What a method remembers besides, one vector a row: models of the past, or a vector for each client."""

    @classmethod
    def initial(cls, parameters: Parameters, size: int) -> ModelList:
        """The list L_0: `size` copies of one model."""
        rows = parameters.expand(size, -1).clone()
        return cls(rows, tuple(range(size)), ((),) * size, (0,) * size, size)

    def __len__(self) -> int:
        return len(self.ids)

    def with_new(self, proposed: Sequence[Proposed]) -> ModelList:
        """The list with new models at its end."""
        if not proposed:
            return self
        rows = torch.stack([new.parameters for new in proposed])
        born = range(self.next_id, self.next_id + len(proposed))
        parents = (tuple(self.ids[parent] for parent in new.parents) for new in proposed)
        return ModelList(
            parameters=torch.cat([self.parameters, rows]),
            ids=(*self.ids, *born),
            parents=(*self.parents, *parents),
            ages=(*self.ages, *(0 for _ in proposed)),
            next_id=born.stop,
            standing=self.standing,
            memory=self.memory,
        )

    def at(self, positions: Sequence[Position]) -> ModelList:
        """The models at these positions, in that order."""
        return replace(
            self,
            parameters=self.parameters[list(positions)],
            ids=tuple(self.ids[position] for position in positions),
            parents=tuple(self.parents[position] for position in positions),
            ages=tuple(self.ages[position] for position in positions),
        )

    def renewed(self, new: Mapping[Position, Proposed]) -> ModelList:
        """The list with new models in the places of old ones."""
        place = {old: len(self) + row for row, old in enumerate(new)}
        return self.with_new(list(new.values())).at([place.get(row, row) for row in range(len(self))])

    def without(self, positions: Iterable[Position]) -> ModelList:
        """The list with the models at these positions removed and the others one vote older."""
        removed = set(positions)
        keep = [position for position in range(len(self)) if position not in removed]
        return replace(
            self,
            parameters=self.parameters[keep],
            ids=tuple(self.ids[position] for position in keep),
            parents=tuple(self.parents[position] for position in keep),
            ages=tuple(self.ages[position] + 1 for position in keep),
        )

    def holding(self, ballots: Mapping[Client, Ballot], candidates: ModelList) -> ModelList:
        """The list with these ballots, on the candidates of its vote, beside those that stood before."""
        named = {voter: tuple(candidates.ids[place] for place in ballot) for voter, ballot in ballots.items()}
        here = set(self.ids)
        kept = {voter: tuple(m for m in ids if m in here) for voter, ids in {**self.standing, **named}.items()}
        return replace(self, standing={voter: ids for voter, ids in kept.items() if ids})

    def ballot_of(self, voter: Client) -> Ballot:
        """What is left of a voter's last ballot, by position; empty if it never cast one that holds still."""
        place = {model: position for position, model in enumerate(self.ids)}
        return tuple(place[model] for model in self.standing.get(voter, ()) if model in place)


@dataclass(frozen=True)
class Train:
    """Asks each worker to train the one it likes best of the models it is offered and to send a `Trained`."""

    round_index: int
    models: ModelList
    offers: Mapping[Client, tuple[Position, ...]]
    """The models that each worker may start from."""
    alone: bool = False
    """Whether what a worker trains stays its own: nobody else will use it."""
    anchor: Position | None = None
    """The model that training is drawn to, if any: every gradient has λ(w − anchor) added."""
    pull: float = 0.0
    """λ, how strongly it is."""


@dataclass(frozen=True)
class Trained:
    """A worker's reply: which of the offered models it started from, and u = w_τ − w_0."""

    parent: Position
    update: Parameters
    new: bool = False
    """Whether somebody else had its number before: then nothing that is remembered of it holds."""


@dataclass(frozen=True)
class Choose:
    """Asks each juror for a `Ballot`: the `ranks` rows of `models` that serve its own validation data best."""

    round_index: int
    models: Models
    voters: tuple[Client, ...]
    ranks: int
    known: Models
    """The list as it stands: a juror may mistrust what lies too far from it."""


@dataclass(frozen=True)
class Vote:
    """Asks each voter for a `Ballot` that ranks at most `ranks` of the candidates; `seats` of them will stay."""

    round_index: int
    candidates: ModelList
    voters: tuple[Client, ...]
    seats: int
    ranks: int = 1
    listed: int | None = None
    """How many of the candidates were in the list before; None for as many as there are seats."""

    @property
    def models(self) -> Models:
        """The candidates' parameters, one a row."""
        return self.candidates.parameters

    @property
    def known(self) -> Models:
        """The list as it stood before this round."""
        return self.candidates.parameters[: self.seats if self.listed is None else self.listed]

    @property
    def quorum(self) -> int:
        """Fewer voters than this could not keep a model even if they agreed: ⌊v/(q + 1)⌋ + 1."""
        return len(self.voters) // (self.seats + 1) + 1


@dataclass(frozen=True)
class Validate:
    """Asks each validator whether the last of these models looks poisoned, given those before it: a bool."""

    round_index: int
    models: Models
    """Models that were accepted, oldest first, and the new one."""
    voters: tuple[Client, ...]


@dataclass(frozen=True)
class ServerLosses:
    """Asks for the loss of each model on the clean images that the server holds itself, if it holds any."""

    round_index: int
    models: Models


@dataclass(frozen=True)
class ServerTrains:
    """Asks for what a model gains by one local training on the server's own images: an update."""

    round_index: int
    model: Parameters
    part: int = 0
    """Which of several trainings in a round it is: each has its own batches."""


SERVER: Client = -1
"""In whose name the server's own data answers."""

Request: TypeAlias = Train | Choose | Vote | Validate | ServerLosses | ServerTrains
Replies: TypeAlias = Iterable[tuple[Client, object]]
"""What came back, by sender. Anyone may send anything, or twice, or nothing."""


@dataclass(frozen=True)
class Birth:
    """A model that stood for election for the first time."""

    model: int
    parents: tuple[int, ...]
    """The models that it was made from, by id."""
    clients: tuple[Client, ...]
    """Whose updates went into it; none if the server made it of other models."""


@dataclass(frozen=True)
class Record:
    """What the server knows of a round once it is over; models by id."""

    round_index: int
    born: tuple[Birth, ...]
    votes: dict[int, int]
    """First choices by candidate."""
    removed: tuple[int, ...]
    rejected: dict[str, int]
    """How many replies were not used, by reason."""
    stood: int = 0
    """How many earlier ballots stood for voters who did not answer."""


@dataclass(frozen=True)
class Outcome:
    """What a round returns: the next list and the record."""

    models: ModelList
    record: Record
    played: bool = True
    """False if too few clients answered: the list is as it was, and the round is still to be played."""


Round: TypeAlias = Generator[Request, Replies, Outcome]
Answer: TypeAlias = Callable[[Request], Replies]
