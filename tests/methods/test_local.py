"""Training alone is what a client would do without a federation, stopped where its own data likes it best."""

from pathlib import Path

import torch

from lidfl import RunDirectory, pick, run
from lidfl.learning.client import candidate_losses, draw_batches, local_update
from lidfl.seeds import rng_for, seed_for
from lidfl.simulation.simulator import Simulator
from tests.twin import tiny


def test_each_client_ends_with_the_best_model_of_its_own_training(tmp_path: Path) -> None:
    settings = dict(method="local", model="mlp:hidden=5", attack="none", vote_attack="none", rounds=6)
    experiment = tiny(**settings, out=str(tmp_path / "run"))
    summary = run(experiment)
    simulator = Simulator.of(experiment)
    models = RunDirectory(experiment.out).final_state().models.parameters
    accuracies = []
    for client in range(experiment.num_clients):
        images, labels = simulator.data.train.of(client)
        validation = simulator.data.validation.of(client)
        model = best = simulator.network.initial()
        for round_index in range(experiment.rounds):
            rng = rng_for(experiment.seed, "batch", round_index, client)
            rows = torch.from_numpy(draw_batches(len(labels), simulator.workshop.work, rng))
            seed = seed_for(experiment.seed, "dropout", round_index, client)
            model = model + local_update(
                simulator.network, model, images, labels, rows, simulator.workshop.work, seed
            )
            now, before = candidate_losses(simulator.network, torch.stack([model, best]), *validation)
            best = model if now < before else best
        torch.testing.assert_close(models[client], best, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(models[experiment.num_clients + client], model, rtol=1e-4, atol=1e-5)
        if client in simulator.cast.honest:
            test_images, test_labels = simulator.data.test.of(client)
            said = simulator.network.apply(simulator.network.unflatten(best), test_images, training=False)
            accuracies.append(float((said.argmax(1) == test_labels).double().mean()))
    assert abs(summary["deployed_accuracy"] - sum(accuracies) / len(accuracies)) < 1e-6


def test_a_client_picks_the_model_that_it_trained(tmp_path: Path) -> None:
    experiment = tiny(method="local", attack="none", rounds=2, out=str(tmp_path / "run"))
    run(experiment)
    choice = pick(experiment.out, client=3)
    assert choice.ids == (RunDirectory(experiment.out).final_state().models.ids[3],)


def test_nobody_has_a_say_in_what_others_train(tmp_path: Path) -> None:
    """Whatever Byzantine clients send or say, honest clients train as before."""
    found = []
    for attack, votes in (("none", "none"), ("sign_flip", "worst")):
        experiment = tiny(method="local", attack=attack, vote_attack=votes, rounds=4, out=str(tmp_path / attack))
        found.append(run(experiment)["deployed_accuracy"])
    assert found[0] == found[1]
