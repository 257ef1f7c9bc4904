"""Honest clients put last what no training could have reached, and look ahead if they are asked to."""

import numpy as np
import torch

from lidfl.learning.client import beyond_reach, candidate_losses, draw_batches, local_update
from lidfl.methods.elections import honest_ballots, put_last
from lidfl.protocol import Choose
from lidfl.runs.server import Server, first_list
from lidfl.seeds import rng_for
from lidfl.simulation.simulator import SimulatedRound, Simulator
from tests.twin import tiny


def test_reach_is_measured_from_the_nearest_model_of_the_list() -> None:
    models = torch.tensor([[0.0, 3.0], [10.0, 1.0], [6.0, 0.0], [float("inf"), 0.0]])
    known = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    far = beyond_reach(models, known, np.array([2.0, 3.5]))
    assert far.tolist() == [[True, False, True, True], [False, False, True, True]]


def test_what_is_put_last_comes_last_in_its_own_order() -> None:
    losses = np.array([[1.0, 2.0, 0.5, np.inf, 3.0]])
    last = np.array([[True, False, True, False, False]])
    assert honest_ballots(put_last(losses, last), 5) == [(1, 4, 2, 0)]
    assert honest_ballots(put_last(losses, np.ones_like(last)), 5) == [(2, 0, 1, 4)]


def judged(**settings: object) -> tuple[Simulator, Choose, list[int], np.ndarray]:
    experiment = tiny(method="lidfl-ranked", model="mlp:hidden=5", judge="loss", **settings)
    simulator = Simulator.of(experiment)
    first = simulator.network.initial()
    models = torch.stack([first, first + 0.001, first + 100])
    clients = simulator.cast.honest
    request = Choose(3, models, tuple(clients), 3, first[None])
    losses = simulator.judges.fleeting_losses(models, np.array(clients))
    return simulator, request, clients, simulator.voting.wariness.judged(losses, request, clients, {})


def test_without_either_losses_are_as_they_are() -> None:
    simulator, request, clients, losses = judged()
    assert (losses == simulator.judges.fleeting_losses(request.models, np.array(clients))).all()


def test_a_client_knows_its_reach_from_training_the_first_model() -> None:
    _, _, _, losses = judged(reach=3.0)
    assert (losses[:, 2] > losses[:, :2].max(1)).all()


def test_in_a_round_it_knows_it_from_what_it_trained_of_its_own_choice() -> None:
    simulator, request, clients, _ = judged(reach=3.0)
    wide = dict.fromkeys(clients, 1e6)
    losses = simulator.judges.fleeting_losses(request.models, np.array(clients))
    assert (simulator.voting.wariness.judged(losses, request, clients, wide) == losses).all()


def test_lookahead_judges_what_becomes_of_a_model_by_the_clients_own_steps() -> None:
    simulator, request, clients, losses = judged(lookahead=2)
    client, shop = clients[0], simulator.workshop
    images, labels = simulator.data.train.of(client)
    rng = rng_for(simulator.experiment.seed, "lookahead", 3, client)
    rows = torch.from_numpy(draw_batches(len(labels), shop.work, rng)[:2])
    start = request.models[1]
    reached = start + local_update(simulator.network, start, images, labels, rows, shop.work)
    expected = candidate_losses(simulator.network, reached[None], *simulator.data.validation.of(client))
    np.testing.assert_allclose(losses[0, 1], expected[0], rtol=1e-4)


def test_updates_of_a_model_that_was_not_ones_own_choice_tell_no_reach() -> None:
    for settings, chosen in ((dict(method="lidfl"), False), (dict(method="lidfl-ranked"), True)):
        simulator = Simulator.of(tiny(**settings))

        round_ = Server(simulator.experiment).round(
            first_list(simulator.experiment, simulator.network.initial()), 0
        )
        opened = SimulatedRound(simulator, frozenset())
        opened.answer(next(round_))
        assert bool(opened.lengths) == chosen
