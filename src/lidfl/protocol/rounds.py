"""The rounds: generators that yield requests and are sent the clients' replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lidfl.lazily import torch
from lidfl.protocol.messages import Birth, Choose, ModelList, Outcome, Proposed, Record, Round, Train, Trained, Vote
from lidfl.protocol.proposing import propose, sample
from lidfl.protocol.replies import all_finite, first_choices, valid_ballots, valid_updates
from lidfl.protocol.rules import Gathered, Rules
from lidfl.types import Ballot, Client, Models, Position


def lid_round(
    models: ModelList, round_index: int, clients: Sequence[Client], rng: np.random.Generator, rules: Rules
) -> Round:
    """One round of LiD-FL (paper, algorithm 1) and of what grows out of it."""
    seats = rules.seats or len(models)
    if len(models) > seats:  # there are fewer clients than there were: one model goes, and none comes
        as_it_stands = Gathered(round_index, models, {}, clients, rng, rules)
        return (yield from put_to_vote(as_it_stands, [], len(models) - 1, Counter()))
    offers = offer(models, clients, rng, rules)  # step 1
    trained, unusable = valid_updates((yield Train(round_index, models, offers)), offers, models)  # step 2
    if unusable["missing"] == len(offers):
        return unplayed(round_index, models, unusable)
    gathered = Gathered(round_index, models, in_form(trained, models, rules), clients, rng, rules)
    proposed, undecided = yield from propose(gathered, rules.proposals)  # step 3
    rejected = unusable + undecided
    if not proposed:
        return Outcome(models, _record(round_index, models, models, [], [], rejected))
    return (yield from put_to_vote(gathered, proposed, seats, rejected))


def put_to_vote(gathered: Gathered, proposed: Sequence[Proposed], seats: int, rejected: Counter[str]) -> Round:
    """The paper's steps 4 and 5: the list and what is proposed for it stand for so many seats."""
    models, rules, round_index = gathered.models, gathered.rules, gathered.round_index
    candidates = models.with_new(proposed)
    voters = sample(gathered.clients, rules.voters or len(gathered.clients), gathered.rng)
    ranks = len(candidates) if rules.ranked else 1
    vote = Vote(round_index, candidates, voters, seats, ranks, listed=len(models))
    ballots, spoilt = valid_ballots((yield vote), vote)  # step 4
    rejected = rejected + spoilt
    if len(ballots) < vote.quorum:
        return unplayed(round_index, models, rejected)
    stood = {voter: candidates.ballot_of(voter) for voter in voters if voter not in ballots}
    cast = [*ballots.values(), *filter(None, stood.values())]
    filled = min(seats, len(candidates))  # more clients than there were need more seats, which fill up in time
    survivors = candidates.without(rules.elect(cast, candidates.ages, filled))  # step 5
    record = _record(round_index, candidates, survivors, proposed, cast, rejected)
    return Outcome(survivors.holding(ballots, candidates), replace(record, stood=len(cast) - len(ballots)))


def in_form(trained: Mapping[Client, Trained], models: ModelList, rules: Rules) -> Mapping[Client, Trained]:
    """The updates that lead to the same functions in the form that all models have here.

    What would overflow on the way is taken as it was sent.
    """
    if rules.canonical is None or not trained:
        return trained
    parents = models.parameters[[sent.parent for sent in trained.values()]]
    grown = parents + torch.stack([sent.update for sent in trained.values()])
    steps = zip(trained.items(), rules.canonical(grown, parents) - parents, strict=True)
    return {c: replace(sent, update=step) if all_finite(step) else sent for (c, sent), step in steps}


def unplayed(round_index: int, models: ModelList, rejected: Counter[str]) -> Outcome:
    """A round that too few answered: whoever is absent must not decide, so it is to be played again."""
    return Outcome(models, _record(round_index, models, models, [], [], rejected), played=False)


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
    models: ModelList, round_index: int, clients: Sequence[Client], rng: np.random.Generator, rules: Rules
) -> Round:
    """One round of ordinary federated learning (paper, section 2.2): one model, all clients train, no vote."""
    offers = dict.fromkeys(clients, (0,))
    trained, unusable = valid_updates((yield Train(round_index, models, offers)), offers, models)
    if unusable["missing"] == len(offers):
        return unplayed(round_index, models, unusable)
    models = replace(models, memory=remembered(models, trained, clients, rules))
    gathered = Gathered(round_index, models, trained, clients, rng, rules)
    proposed, undecided = yield from propose(gathered, rules.proposals)
    candidates = models.with_new(proposed)
    survivors = candidates.without([0]) if proposed else models
    return Outcome(survivors, _record(round_index, candidates, survivors, proposed, [], unusable + undecided))


def remembered(
    models: ModelList, trained: Mapping[Client, Trained], clients: Sequence[Client], rules: Rules
) -> Models | None:
    """What is kept of each client once it has sent an update, one row each; of somebody new, nothing before it."""
    if not rules.remembers:
        return models.memory
    rows = models.parameters.new_zeros(len(clients), models.parameters.shape[1])
    rows = rows if models.memory is None else models.memory.clone()
    largest = torch.finfo(rows.dtype).max
    for client, sent in trained.items():
        starts_anew = sent.new or rules.remembers == "last"
        total = sent.update if starts_anew else rows[client] + sent.update
        rows[client] = total.clamp(-largest, largest)
    return rows


def local_round(
    models: ModelList, round_index: int, clients: Sequence[Client], _rng: np.random.Generator, _rules: Rules
) -> Round:
    """Everyone trains alone: row c is the best model of client c so far, by its own data, row m + c its latest."""
    own = len(clients)
    offers = {client: (own + client,) for client in clients}
    training = Train(round_index, models, offers, alone=True)
    trained, unusable = valid_updates((yield training), offers, models)
    rows = models.parameters.clone()
    for client, sent in trained.items():
        rows[own + client] += sent.update
        pair = Choose(round_index, rows[[client, own + client]], (client,), 1, models.parameters[:0])
        ballots, spoilt = valid_ballots((yield pair), pair)
        unusable += spoilt
        if ballots.get(client) == (1,):
            rows[client] = rows[own + client]
    grown = [Proposed((place,), row, (place % own,)) for place, row in enumerate(rows)]
    candidates = models.with_new(grown)
    survivors = candidates.without(range(len(models)))
    return Outcome(survivors, _record(round_index, candidates, survivors, grown, [], unusable))


def succeed(
    round_index: int,
    models: ModelList,
    new: Mapping[Position, Proposed],
    rejected: Counter[str],
    ballots: Sequence[Ballot] = (),
) -> Outcome:
    """A round's outcome where new models take the places of old ones; what is not finite takes none."""
    sound = {place: made for place, made in new.items() if all_finite(made.parameters)}
    proposed = list(sound.values())
    candidates, survivors = models.with_new(proposed), models.renewed(sound)
    return Outcome(survivors, _record(round_index, candidates, survivors, proposed, ballots, rejected))


def _record(
    round_index: int,
    candidates: ModelList,
    survivors: ModelList,
    proposed: Sequence[Proposed],
    ballots: Sequence[Ballot],
    rejected: Counter[str],
) -> Record:
    votes = first_choices(ballots, len(candidates))
    newcomers = range(len(candidates) - len(proposed), len(candidates))
    return Record(
        round_index=round_index,
        born=tuple(
            Birth(candidates.ids[position], candidates.parents[position], new.clients)
            for position, new in zip(newcomers, proposed, strict=True)
        ),
        votes=dict(zip(candidates.ids, votes, strict=True)),
        removed=tuple(sorted(set(candidates.ids) - set(survivors.ids))),
        rejected=dict(rejected),
    )
