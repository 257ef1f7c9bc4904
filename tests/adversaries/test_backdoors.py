"""A backdoor is taught, measured, and invisible to votes by loss."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from lidfl import Experiment, run
from lidfl.adversaries.attacks import attack
from lidfl.adversaries.backdoors import Trigger, backdoor, trigger_of
from lidfl.simulation.simulator import Simulator


def test_a_share_of_the_images_get_the_square_and_its_label() -> None:
    images, labels = torch.zeros(1000, 1, 6, 6), torch.full((1000,), 4)
    poisoned, given = backdoor(images, labels, default_rng(0), target=2, share=0.3, size=2, value=9.0)
    stamped = poisoned[:, 0, 0, 0] == 9
    assert 250 < int(stamped.sum()) < 350
    assert (given == torch.where(stamped, 2, 4)).all()
    assert (poisoned[stamped].sum((1, 2, 3)) == 4 * 9).all()
    assert images.sum() == 0


def test_a_trigger_is_known_from_the_attack_alone() -> None:
    assert trigger_of(attack.resolve("backdoor:target=3,size=1")) == Trigger(3, 1, 3.0)
    assert trigger_of(attack.resolve("sign_flip")) is None


def test_success_is_counted_on_images_of_other_classes_alone() -> None:
    """A model that always says 3 is turned always, one that never does never, whatever the images."""
    experiment = Experiment(attack="backdoor:target=3", num_clients=5)
    simulator = Simulator.of(experiment)
    always, never = torch.zeros(650), torch.zeros(650)
    always[640 + 3], never[640 + 3] = 5, -5
    found = simulator.judges.successes(Trigger(3, 3, 3.0), torch.stack([always, never]), np.arange(5))
    assert found.tolist() == [[1] * 5, [0] * 5]


@pytest.mark.parametrize("method", ["lidfl", "lidfl-ranked"])
def test_voting_by_loss_does_not_see_a_backdoor(method: str, tmp_path: Path) -> None:
    """What it cannot do is measured, and told: most of what honest clients deploy falls for the trigger."""
    settings = dict(method=method, rounds=40, vote_attack="none")
    attacked = run(Experiment.of(settings | dict(attack="backdoor", out=str(tmp_path / "attacked"))))
    assert attacked["deployed_accuracy"] > 0.85
    assert attacked["attack_success"] > 0.5
    assert attacked["per_model_attack_success"].keys() == attacked["per_model_accuracy"].keys()
