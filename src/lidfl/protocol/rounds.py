"""The rounds: generators that yield requests and are sent the clients' replies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lidfl.elections import first_choices
from lidfl.protocol.messages import Answer, Birth, Child, ModelList, Outcome, Record, Round, Train, Vote
from lidfl.protocol.proposals import Gathered, Propose, client, propose, sample
from lidfl.protocol.replies import valid_ballots, valid_updates
from lidfl.types import Ballot, Client, Position


class Elect(Protocol):
    """A bound election: which candidates go."""

    def __call__(self, ballots: Sequence[Ballot], ages: Sequence[int], seats: int) -> list[Position]:
        """The positions that go, so that `seats` stay."""
        ...


@dataclass(frozen=True)
class Rules:
    """How a list is trained and voted on; as they stand, the paper's algorithm 1 but for `elect`."""

    elect: Elect
    ranked: bool = False
    """Whether ballots rank all candidates, or name one."""
    proposals: tuple[Propose, ...] = (client,)
    candidates: int = 1
    """How many new models a proposal of clients or jurors makes."""
    every_group: bool = False
    favourite_parents: bool = False
    """Whether a worker trains the model that it likes best, or one that is drawn."""
    same_parent: bool = False
    """Whether all workers are given the same model, so that their updates can be compared."""
    workers: int | None = 1
    """How many train; None for all."""
    voters: int | None = None
    """How many vote; None for all."""
    num_honest: int = 1
    """How many of those who train are taken to be honest."""


def lid_round(
    models: ModelList, round_index: int, clients: Sequence[Client], rng: np.random.Generator, rules: Rules
) -> Round:
    """One round of LiD-FL (paper, algorithm 1) and of what grows out of it."""
    seats = len(models)
    offers = offer(models, clients, rng, rules)  # step 1
    trained, rejected = valid_updates((yield Train(round_index, models, offers)), offers, models)  # step 2
    gathered = Gathered(
        *(round_index, models, trained, clients, rng),
        *(rules.num_honest, rules.candidates, rules.every_group),
        rejected=rejected,
    )
    children = yield from propose(gathered, rules.proposals)  # step 3
    if not children:
        return Outcome(models, _record(round_index, models, models, [], [], rejected))
    candidates = models.with_children(children)
    voters = sample(clients, rules.voters or len(clients), rng)
    vote = Vote(round_index, candidates, voters, seats, ranks=len(candidates) if rules.ranked else 1)
    ballots, spoilt = valid_ballots((yield vote), vote)  # step 4
    cast = list(ballots.values())
    survivors = candidates.without(rules.elect(cast, candidates.ages, seats))  # step 5
    return Outcome(survivors, _record(round_index, candidates, survivors, children, cast, rejected + spoilt))


def offer(
    models: ModelList, clients: Sequence[Client], rng: np.random.Generator, rules: Rules
) -> dict[Client, tuple[Position, ...]]:
    """The paper's step 1: who trains, and which models each may start from."""
    workers = min(rules.workers or len(clients), len(clients))
    if rules.favourite_parents:
        return dict.fromkeys(sample(clients, workers, rng), tuple(range(len(models))))
    if rules.same_parent:
        parent = int(rng.integers(len(models)))
        return dict.fromkeys(sample(clients, workers, rng), (parent,))
    offers: dict[Client, tuple[Position, ...]] = {}
    while len(offers) < workers:  # a random model to a random client
        parent = int(rng.integers(len(models)))
        offers.setdefault(clients[int(rng.integers(len(clients)))], (parent,))
    return offers


def single_round(
    models: ModelList,
    round_index: int,
    clients: Sequence[Client],
    rng: np.random.Generator,
    rules: Rules,
) -> Round:
    """One round of ordinary federated learning (paper, section 2.2): one model, all clients train, no vote."""
    offers = dict.fromkeys(clients, (0,))
    trained, rejected = valid_updates((yield Train(round_index, models, offers)), offers, models)
    gathered = Gathered(round_index, models, trained, clients, rng, rules.num_honest)
    children = yield from propose(gathered, rules.proposals)
    candidates = models.with_children(children)
    survivors = candidates.without([0]) if children else models
    return Outcome(survivors, _record(round_index, candidates, survivors, children, [], rejected))


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
