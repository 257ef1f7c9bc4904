"""Promises that every registered rule keeps, whoever wrote it."""

from typing import Any

import numpy as np
import pytest
import torch

from lidfl.adversaries.attacks import attack
from lidfl.adversaries.backdoors import Poison
from lidfl.adversaries.vote_attacks import vote_attack
from lidfl.data import dataset
from lidfl.data.partitions import partition
from lidfl.errors import LidflError
from lidfl.learning.judges import judge
from lidfl.learning.models import build_model, model
from lidfl.methods.aggregators import aggregator, means_and_members
from lidfl.methods.elections import election, honest_ballots
from lidfl.registry import Registry

REGISTRIES = [aggregator, attack, dataset, election, model, partition, vote_attack]
UPDATES = torch.from_numpy(np.random.default_rng(1).normal(size=(7, 12))).float()
LOSSES = np.random.default_rng(2).uniform(size=(9, 4))


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_entry_is_described_in_one_sentence(registry: Registry[object]) -> None:
    for name, _, summary in registry.describe():
        assert summary.endswith("."), name
        assert len(summary) < 120, name


@pytest.mark.parametrize("name", sorted(aggregator))
@pytest.mark.parametrize("clients", [1, 2, 7])
def test_every_aggregator_gives_finite_candidates_of_the_right_size(name: str, clients: int) -> None:
    updates = UPDATES[:clients].clone()
    outcome = aggregator.resolve(name)(updates, num_honest=3, rng=np.random.default_rng(0))
    for vector, rows in means_and_members(outcome, updates):
        assert vector.shape == (12,)
        assert vector.isfinite().all()
        assert set(rows.tolist()) <= set(range(clients))
    assert torch.equal(updates, UPDATES[:clients]), "the input is not modified"


@pytest.mark.parametrize("name", sorted({*aggregator, "flame:noise=0"} - {"flame"}))
def test_every_aggregator_returns_what_all_clients_agree_on(name: str) -> None:
    agreed = torch.full((5, 3), 0.1)
    outcome = aggregator.resolve(name)(agreed, num_honest=2, rng=np.random.default_rng(0))
    for vector, _ in means_and_members(outcome, agreed):
        torch.testing.assert_close(vector, agreed[0])


@pytest.mark.parametrize("name", sorted(name for name in attack if "labels" not in attack.resolve(name).wants))
@pytest.mark.parametrize("attackers", [1, 4])
def test_every_attack_gives_each_attacker_a_vector_and_leaves_its_input_alone(name: str, attackers: int) -> None:
    own, honest = UPDATES[:attackers].clone(), UPDATES[4:].clone()
    rng = np.random.default_rng(0)
    known = dict(start=torch.zeros(12), preferred=torch.ones(12), layers={"weight": (3, 3), "bias": (3,)})
    numbers = dict(attackers=attackers, num_byzantine=4, num_classes=3, round_index=0)
    rule = dict(aggregate=lambda updates: updates.mean(0))
    forged = attack.resolve(name)(own=own, honest=honest, **known, **numbers, **rule, rng=rng)
    assert forged.expand(attackers, -1).shape == (attackers, 12)
    assert torch.equal(own, UPDATES[:attackers])
    assert torch.equal(honest, UPDATES[4:])


ABSURD = ["nan", "inf", "-inf", "-1", "0", "1e308", "-1e308", "1000000000", "1e-320", "", "x", "9" * 400]


def options_of(registry: Registry[Any]) -> list[tuple[str, str]]:
    """Every option of every entry, with its entry."""
    return [(name, option) for name in registry for option in registry.options(name)]


@pytest.mark.parametrize(("name", "option"), options_of(aggregator))
def test_an_absurd_option_of_an_aggregator_is_refused_or_gives_what_is_finite(name: str, option: str) -> None:
    for value in ABSURD:
        try:
            rule = aggregator.resolve(f"{name}:{option}={value}")
        except LidflError:
            continue
        outcome = rule(UPDATES, num_honest=3, rng=np.random.default_rng(0), history=None)
        assert all(vector.isfinite().all() for vector, _ in means_and_members(outcome, UPDATES)), value


@pytest.mark.parametrize(("name", "option"), options_of(attack))
def test_an_absurd_option_of_an_attack_is_refused_or_gives_something_to_send(name: str, option: str) -> None:
    numbers = dict(attackers=4, num_byzantine=4, num_classes=10, round_index=3)
    tensors = dict(own=UPDATES[:4], honest=UPDATES[4:], start=torch.zeros(12), preferred=torch.ones(12))
    images = dict(images=torch.zeros(10, 1, 4, 4), labels=torch.arange(10), owners=np.arange(10))
    world = dict(layers={"weight": (3, 3), "bias": (3,)}, aggregate=lambda updates: updates.mean(0))
    for value in ABSURD:
        rng = np.random.default_rng(0)
        try:
            forged = attack.resolve(f"{name}:{option}={value}")(**numbers, **tensors, **images, **world, rng=rng)
        except LidflError:
            continue
        if isinstance(forged, Poison):
            assert forged.images.shape == (10, 1, 4, 4), value
            forged = forged.send(UPDATES[:4], UPDATES[4:]) if forged.send else UPDATES[:4]
        assert forged.expand(4, -1).shape == (4, 12), value


@pytest.mark.parametrize(("name", "option"), options_of(judge))
def test_an_absurd_option_of_a_judge_is_refused_or_still_tells_models_apart(name: str, option: str) -> None:
    labels = torch.arange(4)
    right, wrong = 5 * torch.eye(4), 5 * torch.eye(4).roll(1, 0)
    for value in ABSURD:
        try:
            rule = judge.resolve(f"{name}:{option}={value}")
        except LidflError:
            continue
        good, bad = (rule(outputs, labels, num_classes=4).mean() for outputs in (right, wrong))
        assert good < bad, value


@pytest.mark.parametrize("name", sorted(vote_attack))
@pytest.mark.parametrize("seats", [1, 3])
def test_every_vote_attack_casts_one_valid_ballot_a_voter(name: str, seats: int) -> None:
    own, honest = LOSSES[:5].copy(), LOSSES[5:].copy()
    own[0] = np.inf
    ballots = vote_attack.resolve(name)(
        losses=own,
        honest_losses=honest,
        honest_ballots=honest_ballots(honest),
        ages=[3, 2, 1, 0],
        seats=seats,
        rng=np.random.default_rng(0),
    )
    assert len(ballots) == 5
    for ballot in ballots:
        assert len(ballot) <= 1
        assert all(type(choice) is int and 0 <= choice < 4 for choice in ballot)


@pytest.mark.parametrize("name", sorted(election))
@pytest.mark.parametrize("seats", [1, 2, 3])
def test_every_election_fills_exactly_the_seats(name: str, seats: int) -> None:
    removed = election.resolve(name)(honest_ballots(LOSSES), [5, 4, 1, 0], seats)
    assert len(set(removed)) == len(removed) == 4 - seats


@pytest.mark.parametrize("name", sorted(model))
def test_every_model_maps_images_to_classes_and_is_made_from_its_seed(name: str) -> None:
    first, second = (build_model(name, (1, 12, 12), 4, seed=3) for _ in range(2))
    images = torch.randn(2, 1, 12, 12)
    assert first(images).shape == (2, 4)
    assert torch.equal(first(images), second(images))
