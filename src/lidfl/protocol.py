"""The protocol, without I/O: a round is a generator that yields requests and is sent the clients' replies.

Who answers, an in-process simulator or a fleet of remote clients, a round cannot tell; nor can it tell who is
honest. Whatever a client may do wrong is caught once, where its reply enters, counted, and treated as no reply.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from lidfl.aggregators import Groups, proposals
from lidfl.elections import first_choices
from lidfl.types import Ballot, Client, Parameters, Position, Updates

T = TypeVar("T")


@dataclass(frozen=True)
class ModelList:
    """The list L_t: one model a row, in order of birth."""

    parameters: Updates
    ids: tuple[int, ...]
    parents: tuple[int, ...]
    """The id of the model that each was trained from; -1 for the models of the initial list."""
    ages: tuple[int, ...]
    """How many votes each has survived."""
    next_id: int

    @classmethod
    def initial(cls, parameters: Parameters, size: int) -> "ModelList":
        """The list L_0: `size` copies of one model."""
        rows = parameters.expand(size, -1).clone()
        return cls(rows, tuple(range(size)), (-1,) * size, (0,) * size, size)

    def __len__(self) -> int:
        return len(self.ids)

    def with_children(self, children: Sequence["Child"]) -> "ModelList":
        """The list with new models at its end."""
        rows = torch.stack([child.parameters for child in children])
        born = range(self.next_id, self.next_id + len(children))
        return ModelList(
            parameters=torch.cat([self.parameters, rows]),
            ids=(*self.ids, *born),
            parents=(*self.parents, *(self.ids[child.parent] for child in children)),
            ages=(*self.ages, *(0 for _ in children)),
            next_id=born.stop,
        )

    def without(self, positions: Iterable[Position]) -> "ModelList":
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


@dataclass(frozen=True)
class Train:
    """Asks each worker to train one of the models it is offered and to send back a `Trained`."""

    round_index: int
    models: ModelList
    offers: Mapping[Client, tuple[Position, ...]]
    """The models that each worker may start from."""


@dataclass(frozen=True)
class Trained:
    """A worker's reply: which of the offered models it started from, and u = w_τ − w_0."""

    parent: Position
    update: Parameters


@dataclass(frozen=True)
class Vote:
    """Asks each voter for a `Ballot` that ranks at most `ranks` of the candidates."""

    round_index: int
    candidates: ModelList
    voters: tuple[Client, ...]
    seats: int
    ranks: int = 1


Request: TypeAlias = Train | Vote
Replies: TypeAlias = Iterable[tuple[Client, object]]
"""What came back, by sender. Anyone may send anything, or twice, or nothing."""


@dataclass(frozen=True)
class Child:
    """A proposed model: its parent's position, its parameters, and the clients whose updates went into it."""

    parent: Position
    parameters: Parameters
    clients: tuple[Client, ...]


@dataclass(frozen=True)
class Birth:
    """A model that joined the list: its id, its parent's, and the clients whose updates went into it."""

    model: int
    parent: int
    clients: tuple[Client, ...]


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


@dataclass(frozen=True)
class Outcome:
    """What a round returns: the next list and the record."""

    models: ModelList
    record: Record


Round: TypeAlias = Generator[Request, Replies, Outcome]
Answer: TypeAlias = Callable[[Request], Replies]


class Aggregate(Protocol):
    """A bound aggregator."""

    def __call__(self, updates: Updates, *, num_honest: int, rng: np.random.Generator) -> Parameters | Groups:
        """Turn updates, one a row, into one update or groups of rows."""
        ...


class Elect(Protocol):
    """A bound election: which candidates go."""

    def __call__(self, ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> list[Position]:
        """The positions that go, so that `seats` stay."""
        ...


def lid_round(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    rng: np.random.Generator,
    *,
    elect: Elect,
    aggregate: Aggregate | None = None,
    num_honest: int = 1,
) -> Round:
    """One round of LiD-FL (paper, algorithm 1), or with an aggregator of LiD-FL + RKNN or MEB (appendix B.6).

    Without an aggregator one sampled client trains; with one, all clients train and one group's mean is drawn.
    """
    seats = len(models)
    parent = int(rng.integers(seats))  # step 1: a random model to a random client
    workers = list(clients) if aggregate else [int(rng.choice(clients))]
    offers = dict.fromkeys(workers, (parent,))
    trained, rejected = valid_updates((yield Train(round_index, models, offers)), offers, models)  # step 2
    children = propose(trained, models, rng, aggregate, num_honest)  # step 3
    if not children:
        return Outcome(models, _record(round_index, models, models, [], [], rejected))
    candidates = models.with_children(children)
    vote = Vote(round_index, candidates, tuple(clients), seats)
    ballots, spoilt = valid_ballots((yield vote), vote)  # step 4
    survivors = candidates.without(elect(ballots, candidates.ages, seats))  # step 5
    return Outcome(survivors, _record(round_index, candidates, survivors, children, ballots, rejected + spoilt))


def single_round(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    rng: np.random.Generator,
    *,
    aggregate: Aggregate,
    num_honest: int = 1,
) -> Round:
    """One round of ordinary federated learning (paper, section 2.2): one model, all clients train, no vote."""
    offers = dict.fromkeys(clients, (0,))
    trained, rejected = valid_updates((yield Train(round_index, models, offers)), offers, models)
    children = propose(trained, models, rng, aggregate, num_honest)
    candidates = models.with_children(children) if children else models
    survivors = candidates.without([0]) if children else models
    return Outcome(survivors, _record(round_index, candidates, survivors, children, [], rejected))


def propose(
    trained: Mapping[Client, Trained],
    models: ModelList,
    rng: np.random.Generator,
    aggregate: Aggregate | None,
    num_honest: int,
) -> list[Child]:
    """The new models: each update on its own, or for each parent one of the aggregator's candidates at random."""
    if aggregate is None:
        return [
            Child(reply.parent, models.parameters[reply.parent] + reply.update, (client,))
            for client, reply in trained.items()
        ]
    children = []
    for parent in sorted({reply.parent for reply in trained.values()}):
        senders = [client for client, reply in trained.items() if reply.parent == parent]
        updates = torch.stack([trained[client].update for client in senders])
        found = proposals(aggregate(updates, num_honest=num_honest, rng=rng), updates)
        update, rows = found[int(rng.integers(len(found)))]
        members = tuple(senders[row] for row in rows)
        children.append(Child(parent, models.parameters[parent] + update, members))
    return children


def drive(round_: Round, answer: Answer) -> Outcome:
    """Run a round to its end, taking every request to `answer` and its replies back."""
    request = next(round_)
    while True:
        replies = answer(request)
        try:
            request = round_.send(replies)
        except StopIteration as done:
            outcome: Outcome = done.value
            return outcome


class Malformed(ValueError):
    """Why a reply is not used, in a word or two."""


def valid_updates(
    replies: Replies, offers: Mapping[Client, tuple[Position, ...]], models: ModelList
) -> tuple[dict[Client, Trained], Counter[str]]:
    """The usable updates by client, in the order of the offers, and the others counted by what is wrong."""

    def check(client: Client, reply: object) -> Trained:
        if not isinstance(reply, Trained) or not isinstance(reply.update, Tensor):
            raise Malformed("wrong type")
        if _kind(reply.update) != _kind(models.parameters) or type(reply.parent) is not int:
            raise Malformed("wrong type")
        if reply.update.shape != models.parameters.shape[1:]:
            raise Malformed("wrong shape")
        if reply.parent not in offers[client]:
            raise Malformed("no such model")
        if not reply.update.abs().max().isfinite():
            raise Malformed("not finite")
        return Trained(reply.parent, reply.update.detach())

    return _collect(replies, list(offers), check)


def _kind(tensor: Tensor) -> tuple[torch.dtype, torch.layout, torch.device]:
    """What must agree for two tensors to be added, besides their shapes."""
    return tensor.dtype, tensor.layout, tensor.device


def valid_ballots(replies: Replies, vote: Vote) -> tuple[list[Ballot], Counter[str]]:
    """The usable ballots, in the order of the voters, and the others counted by what is wrong."""
    candidates = range(len(vote.candidates))

    def check(_client: Client, reply: object) -> Ballot:
        if not isinstance(reply, tuple) or any(type(choice) is not int for choice in reply):
            raise Malformed("wrong type")
        if len(reply) > vote.ranks or len(set(reply)) < len(reply):
            raise Malformed("wrong shape")
        if any(choice not in candidates for choice in reply):
            raise Malformed("no such model")
        return reply

    ballots, rejected = _collect(replies, vote.voters, check)
    return list(ballots.values()), rejected


def _collect(
    replies: Replies, asked: Sequence[Client], check: Callable[[Client, object], T]
) -> tuple[dict[Client, T], Counter[str]]:
    """The one valid reply of each client that was asked."""
    received: dict[Client, list[object]] = {client: [] for client in asked}
    rejected: Counter[str] = Counter()
    for client, reply in replies:
        if client in received:
            received[client].append(reply)
        else:
            rejected["not asked"] += 1
    valid = {}
    for client, sent in received.items():
        try:
            valid[client] = check(client, _only(sent))
        except Malformed as reason:
            rejected[str(reason)] += 1
    return valid, rejected


def _only(sent: Sequence[object]) -> object:
    if not sent:
        raise Malformed("missing")
    if len(sent) > 1:
        raise Malformed("sent twice")
    return sent[0]


def _record(
    round_index: int,
    candidates: ModelList,
    survivors: ModelList,
    children: Sequence[Child],
    ballots: Sequence[Ballot],
    rejected: Counter[str],
) -> Record:
    votes = first_choices(ballots, len(candidates))
    newcomers = range(len(candidates) - len(children), len(candidates))
    return Record(
        round_index=round_index,
        born=tuple(
            Birth(candidates.ids[position], candidates.parents[position], child.clients)
            for position, child in zip(newcomers, children, strict=True)
        ),
        votes=dict(zip(candidates.ids, votes, strict=True)),
        removed=tuple(sorted(set(candidates.ids) - set(survivors.ids))),
        rejected=dict(rejected),
    )
