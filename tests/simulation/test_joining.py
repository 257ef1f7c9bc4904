"""Joining never costs more than own data can tell: what clients deploy beside what they would have alone."""

from pathlib import Path

import pytest
import torch

from lidfl import Experiment, run
from lidfl.adversaries.attacks import attack
from lidfl.methods.deploying import deploy, differ
from lidfl.runs.directory import RunDirectory
from lidfl.simulation.deploying import SimulatedOwn
from lidfl.simulation.simulator import Simulator

ROUNDS = 3


@pytest.mark.parametrize("name", sorted(attack))
def test_under_every_attack_nobody_deploys_what_own_images_find_worse_than_training_alone(
    name: str, tmp_path: Path
) -> None:
    settings = dict(method="lidfl-ranked", dataset="digits", num_clients=10, byzantine_fraction=0.6, attack=name)
    rounds = dict(rounds=ROUNDS, local_steps=10, eval_every=ROUNDS, vote_attack="coordinated")
    experiment = Experiment.of(settings | rounds | dict(out=str(tmp_path / "run"), partition="dirichlet"))
    run(experiment, progress=False)
    models = RunDirectory(experiment.out).final_state().models.parameters
    simulator, joined = Simulator.of(experiment), deploy.resolve("joined")
    for client in simulator.cast.honest:
        own = SimulatedOwn(client, simulator.workshop, simulator.judges)
        taken, alone = joined(models, own, rounds=ROUNDS), own.alone(ROUNDS)
        values = own.values(torch.stack([taken, alone]))
        assert not differ(values[0], values[1], errors=2.0), client
