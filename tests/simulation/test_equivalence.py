"""The vectorised simulator plays the same game as a loop over clients."""

import numpy as np
import pytest

from lidfl.protocol import ModelList
from lidfl.runs.loop import drive
from lidfl.runs.server import Server, first_list
from lidfl.simulation.simulator import Simulator
from tests.twin import Twin, tiny

ATTACKS = ["none", "label_flip", "sign_flip", "gauss", "lie", "empire", "omniscient", "ratchet"]
METHODS = [
    dict(method="lidfl"),
    dict(method="lidfl", proposal="rknn"),
    dict(method="lidfl", proposal="meb"),
    dict(method="fedavg"),
    dict(method="gm"),
    dict(method="norm"),
    dict(method="cwm"),
]


def play(**settings: object) -> tuple[Simulator, ModelList]:
    experiment = tiny(**settings)
    simulator, server = Simulator.of(experiment), Server(experiment)
    models = first_list(experiment, simulator.network.initial())
    for round_index in range(experiment.rounds):
        models = drive(server.round(models, round_index), simulator.answer).models
    return simulator, models


@pytest.mark.parametrize("model", ["lr", "mlp:hidden=5"])
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("method", METHODS, ids=lambda m: "-".join(m.values()))
def test_every_method_under_every_attack_gives_the_list_of_the_loop(
    method: dict[str, str], name: str, model: str
) -> None:
    settings = method | dict(attack=name, model=model)
    _, models = play(**settings)
    expected = Twin(tiny(**settings)).play()
    np.testing.assert_allclose(models.parameters.numpy(), expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["gauss", "label_flip", "lie", "ratchet", "sign_flip"])
@pytest.mark.parametrize("model", ["lr", "mlp:hidden=5"])
def test_the_ranked_method_gives_the_list_of_the_loop(name: str, model: str) -> None:
    settings = dict(method="lidfl-ranked", attack=name, model=model, rounds=4, list_size=3)
    _, models = play(**settings)
    twin = Twin(tiny(**settings))
    np.testing.assert_allclose(models.parameters.numpy(), twin.play(), rtol=1e-4, atol=2e-5)
    assert list(models.ages) == twin.ages


@pytest.mark.parametrize("vote_attack", ["worst", "random"])
def test_every_vote_attack_gives_the_list_of_the_loop(vote_attack: str) -> None:
    settings = dict(vote_attack=vote_attack, attack="none", rounds=15)
    _, models = play(**settings)
    twin = Twin(tiny(**settings))
    np.testing.assert_allclose(models.parameters.numpy(), twin.play(), rtol=1e-4, atol=2e-5)
    assert list(models.ages) == twin.ages


def test_each_model_is_evaluated_once_ever() -> None:
    simulator, models = play(rounds=20)
    assert set(simulator.judges.evaluations.values()) == {1}
    assert len(simulator.judges.evaluations) == models.next_id
