"""Whatever clients send, a round ends, the list stays finite, and the work of honest clients is kept."""

from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pytest
import torch
from numpy.random import Generator, default_rng
from torch import nn

from lidfl.learning.balance import balance_of
from lidfl.learning.parameters import Network
from lidfl.methods.aggregators import aggregator, means_and_members
from lidfl.methods.elections import election
from lidfl.methods.method import resolve_method
from lidfl.methods.proposals import proposal, resolve_proposals
from lidfl.protocol import (
    SERVER,
    Choose,
    ModelList,
    Replies,
    Request,
    Rules,
    ServerLosses,
    ServerTrains,
    Train,
    Trained,
    Validate,
    Vote,
    lid_round,
    single_round,
)
from lidfl.runs.loop import drive
from lidfl.types import Ballot, Client, Parameters, Position

DIM, CLIENTS, HONEST, SEATS = 5, range(8), range(3), 2
"""Three honest clients of eight: more than a quota of 8/(2 + 1)."""
TARGET = torch.linspace(-1, 2, DIM)
EXTREMES = [3.4028234e38, -3.4028234e38, 1e-45, -1e-45, -0.0, 0.0, 1.0, -1e19, 1e30]


def loss(model: Parameters) -> float:
    """What honest clients agree on: how far a model is from where they all want to go."""
    return float((model.double() - TARGET).norm())


def ranking(models: torch.Tensor) -> Ballot:
    return tuple(sorted(range(len(models)), key=lambda place: loss(models[place])))


@dataclass
class Hostile:
    """Answers requests: honest clients do their work, the others send the worst that is valid."""

    rng: Generator
    votes: list[Vote] = field(default_factory=list)

    def answer(self, request: Request) -> Replies:
        match request:
            case Train():
                return [(client, self.trained(client, request)) for client in request.offers]
            case Choose() | Vote():
                if isinstance(request, Vote):
                    self.votes.append(request)
                best = ranking(request.models)
                return [(client, self.ballot(client, best, request.ranks)) for client in request.voters]
            case Validate():
                return [(client, self.verdict(client)) for client in request.voters]
            case ServerLosses():
                return [(SERVER, np.array([loss(model) for model in request.models]))]
            case ServerTrains():
                return [(SERVER, (TARGET - request.model) / (2 + request.part))]

    def trained(self, client: Client, request: Train) -> Trained:
        offer, models = request.offers[client], request.models.parameters
        if client in HONEST:
            parent = min(offer, key=lambda place: loss(models[place]))
            return Trained(parent, (TARGET - models[parent]) / 2)
        parent = offer[int(self.rng.integers(len(offer)))]
        return Trained(parent, self.update(models, parent))

    def update(self, models: torch.Tensor, parent: Position) -> Parameters:
        kind = self.rng.integers(5)
        if kind == 0:  # everything at one extreme
            return torch.full((DIM,), float(self.rng.choice(EXTREMES)))
        if kind == 1:  # one coordinate of an honest update
            update = (TARGET - models[parent]) / 2
            update[self.rng.integers(DIM)] = float(self.rng.choice(EXTREMES))
            return update
        if kind == 2:  # bit for bit what an honest client sends
            return (TARGET - models[parent]) / 2
        if kind == 3:  # away from everything, as far as it goes
            return -models[parent].sign() * 3.4e38
        return torch.tensor(self.rng.choice(EXTREMES, DIM), dtype=torch.float32)

    def ballot(self, client: Client, best: Ballot, ranks: int) -> Ballot:
        if client in HONEST:
            return best[:ranks]
        kinds: list[Ballot] = [(), best[::-1][:ranks], best[:ranks]]
        kinds.append(tuple(self.rng.permutation(len(best))[:ranks].tolist()))
        return kinds[int(self.rng.integers(len(kinds)))]

    def verdict(self, client: Client) -> object:
        """Honest validators see nothing wrong; the others send what is no verdict, or either."""
        return False if client in HONEST else [True, False, 1, None][int(self.rng.integers(4))]


PROPOSALS = [*proposal, *aggregator, "jurors:stride=2+rknn+average", "client+cwm+average"]


def rules(spec: str, elect: str, *, favourite: bool, several: bool) -> Rules:
    return Rules(
        proposals=resolve_proposals(spec),
        elect=election.resolve(elect),
        ranked=elect != "plurality",
        candidates=3 if several else 1,
        every_group=several,
        favourite_parents=favourite,
        same_parent=spec != "client",
        workers=None if favourite or spec != "client" else 2,
        num_honest=len(HONEST),
    )


@pytest.mark.parametrize(("favourite", "several"), list(product([True, False], [True, False])))
@pytest.mark.parametrize("elect", list(election))
@pytest.mark.parametrize("spec", PROPOSALS)
def test_a_list_survives_whatever_is_sent(spec: str, elect: str, favourite: bool, several: bool) -> None:
    used = rules(spec, elect, favourite=favourite, several=several)
    hostile = Hostile(default_rng(0))
    models = ModelList.initial(torch.zeros(DIM), SEATS)
    for round_index in range(15):
        before = min(map(loss, models.parameters))
        asked = len(hostile.votes)
        round_ = lid_round(models, round_index, CLIENTS, default_rng(round_index), used)
        models = drive(round_, hostile.answer).models
        assert models.parameters.isfinite().all()
        assert len(models) == SEATS
        best = min(map(loss, models.parameters))
        for vote in hostile.votes[asked:]:
            if used.ranked or len(vote.candidates) == SEATS + 1:  # else single choices may split
                assert best == min(before, *map(loss, vote.candidates.parameters))


@pytest.mark.parametrize("spec", ["client", "rknn", "jurors:stride=2+rknn+average"])
def test_balanced_or_not_a_list_survives_whatever_is_sent(spec: str) -> None:
    """Five parameters are a chain of two inputs, a hidden unit and an output."""
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1)))
    balance = balance_of(network, torch.ones(DIM))
    assert balance is not None
    used = replace(rules(spec, "ranked", favourite=True, several=True), canonical=balance)
    hostile = Hostile(default_rng(2))
    models = ModelList.initial(torch.zeros(DIM), SEATS)
    for round_index in range(150):
        round_ = lid_round(models, round_index, CLIENTS, default_rng(round_index), used)
        models = drive(round_, hostile.answer).models
        assert models.parameters.isfinite().all()
        assert len(models) == SEATS


@pytest.mark.parametrize("elect", list(election))
def test_no_honest_update_is_lost_on_its_way_to_the_vote(elect: str) -> None:
    """Neither beside models with which it shares a huge parameter, nor beside copies of itself."""
    used = rules("client", elect, favourite=True, several=True)
    for seed in range(200):
        hostile = Hostile(default_rng(seed))
        models = ModelList.initial(torch.zeros(DIM), SEATS)
        models.parameters[:, 0] = float(default_rng(seed).choice(EXTREMES))
        round_ = lid_round(models, 0, HONEST, default_rng(seed), used)
        drive(round_, hostile.answer)
        (vote,) = hostile.votes
        grown = models.parameters[0] + (TARGET - models.parameters[0]) / 2
        assert any(torch.equal(grown, model) for model in vote.candidates.parameters[SEATS:])


@pytest.mark.parametrize("name", list(aggregator))
def test_a_single_model_stays_finite_whatever_is_sent(name: str) -> None:
    used = Rules(resolve_proposals(name), election.resolve("plurality"), num_honest=len(HONEST))
    hostile = Hostile(default_rng(1))
    models = ModelList.initial(torch.zeros(DIM), 1)
    for round_index in range(60):
        models = drive(
            single_round(models, round_index, CLIENTS, default_rng(round_index), used), hostile.answer
        ).models
        assert models.parameters.isfinite().all()


RIVALS = ["baffle", "basil", "ditto", "ditto:pull=1,rule=cwm", "fedgreed", "flcert", "fltrust", "ifca:clusters=3"]
RIVALS += ["ifca:rule=krum", "local", "optfil", "semi_verified", "zeno"]


@pytest.mark.parametrize("spec", RIVALS)
def test_a_rival_stays_finite_whatever_is_sent(spec: str) -> None:
    method = resolve_method(spec)
    used = Rules(resolve_proposals("fedavg"), election.resolve("plurality"), num_honest=len(HONEST))
    hostile = Hostile(default_rng(3))
    length = method.length(len(CLIENTS), len(HONEST))
    models = ModelList.initial(torch.zeros(DIM), length)
    for round_index in range(25):
        outcome = drive(method.play(models, round_index, CLIENTS, default_rng(round_index), used), hostile.answer)
        models = outcome.models
        assert models.parameters.isfinite().all()
        assert len(models) == length
        assert len(set(models.ids)) == length
        assert {birth.model for birth in outcome.record.born} <= set(models.ids)
        assert sum(len(birth.clients) == 0 for birth in outcome.record.born) == 0


@pytest.mark.parametrize("spec", ["fedgreed", "local", "basil", "ditto"])
def test_where_own_or_clean_data_decides_honest_work_is_kept(spec: str) -> None:
    """The server's images and honest clients want the same here, so both get there, whatever the others send."""
    method = resolve_method(spec)
    used = Rules(resolve_proposals("fedavg"), election.resolve("plurality"), num_honest=len(HONEST))
    hostile = Hostile(default_rng(4))
    models = ModelList.initial(torch.zeros(DIM), method.length(len(CLIENTS), len(HONEST)))
    for round_index in range(20):
        models = drive(
            method.play(models, round_index, CLIENTS, default_rng(round_index), used), hostile.answer
        ).models
    kept = HONEST if method.personal else [0]
    assert max(loss(models.parameters[row]) for row in kept) < 0.01


@pytest.mark.parametrize("name", list(aggregator))
def test_every_rule_is_finite_on_the_largest_and_the_smallest_numbers(name: str) -> None:
    rng = default_rng(5)
    rule = aggregator.resolve(name)
    for _ in range(150):
        updates = torch.tensor(rng.choice(EXTREMES, (int(rng.integers(1, 9)), DIM)), dtype=torch.float32)
        outcome = rule(updates, num_honest=min(3, len(updates)), rng=rng)
        for vector, _ in means_and_members(outcome, updates):
            assert vector.isfinite().all()
            assert vector.dtype == torch.float32


def test_a_finite_update_that_overflows_its_parent_is_no_update() -> None:
    models = ModelList.initial(torch.full((DIM,), 3e38), SEATS)

    def answer(request: Request) -> Replies:
        assert isinstance(request, Train), "there is nothing to vote on"
        return [(client, Trained(offer[0], torch.full((DIM,), 3e38))) for client, offer in request.offers.items()]

    used = rules("client", "plurality", favourite=True, several=False)
    outcome = drive(lid_round(models, 0, CLIENTS, default_rng(0), used), answer)
    assert outcome.record.rejected == {"not finite": len(CLIENTS)}
    assert np.array_equal(outcome.models.parameters, models.parameters)
