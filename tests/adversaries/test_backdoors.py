"""A backdoor is taught, measured, and invisible to votes by loss."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from lidfl import Experiment, RunDirectory, run
from lidfl.adversaries.attacks import attack
from lidfl.adversaries.backdoors import (
    BARS,
    EdgeCases,
    Trigger,
    backdoor,
    dba,
    edge_case,
    rare,
    scaled,
    square,
    trigger_of,
    where_honest_are_small,
)
from lidfl.simulation.simulator import Simulator


def test_a_share_of_the_images_get_the_square_and_its_label() -> None:
    images, labels = torch.zeros(1000, 1, 6, 6), torch.full((1000,), 4)
    made = backdoor(images, labels, default_rng(0), target=2, share=0.3, size=2, value=9.0)
    poisoned, given = made.images, made.labels
    stamped = poisoned[:, 0, 0, 0] == 9
    assert 250 < int(stamped.sum()) < 350
    assert (given == torch.where(stamped, 2, 4)).all()
    assert (poisoned[stamped].sum((1, 2, 3)) == 4 * 9).all()
    assert images.sum() == 0


def test_a_trigger_is_known_from_the_attack_alone() -> None:
    assert trigger_of(attack.resolve("backdoor:target=3,size=1")) == Trigger(3, ((0, 0, 1, 1),), 3.0)
    assert trigger_of(attack.resolve("sign_flip")) is None


def test_success_is_counted_on_images_of_other_classes_alone() -> None:
    """A model that always says 3 is turned always, one that never does never, whatever the images."""
    experiment = Experiment(attack="backdoor:target=3", num_clients=5)
    simulator = Simulator.of(experiment)
    always, never = torch.zeros(650), torch.zeros(650)
    always[640 + 3], never[640 + 3] = 5, -5
    found = simulator.judges.successes(square(3, 3, 3.0), torch.stack([always, never]), np.arange(5))
    assert found.tolist() == [[1] * 5, [0] * 5]


@pytest.mark.parametrize("method", ["lidfl", "lidfl-ranked"])
def test_voting_by_loss_does_not_see_a_backdoor(method: str, tmp_path: Path) -> None:
    """What it cannot do is measured, and told: most of what honest clients deploy falls for the trigger."""
    settings = dict(method=method, rounds=40, vote_attack="none")
    attacked = run(Experiment.of(settings | dict(attack="backdoor", out=str(tmp_path / "attacked"))))
    assert attacked["deployed_accuracy"] > 0.85
    assert attacked["attack_success"] > 0.5
    assert attacked["per_model_attack_success"].keys() == attacked["per_model_accuracy"].keys()


def test_each_attacker_teaches_one_bar_and_all_four_are_the_trigger() -> None:
    images, labels = torch.zeros(400, 1, 12, 12), torch.full((400,), 4)
    owners = np.arange(400) % 8
    made = dba(images, labels, owners, default_rng(0), target=2, share=0.5, value=9.0)
    for part, (top, left, _, _) in enumerate(BARS):
        theirs = made.images[torch.from_numpy(owners % 4 == part) & (made.labels == 2)]
        assert len(theirs) > 20
        assert (theirs[:, 0, top, left : left + 4] == 9).all()
        assert (theirs.sum((1, 2, 3)) == 4 * 9).all(), "and no other bar"
    trigger = trigger_of(attack.resolve("dba:target=2,value=9"))
    assert trigger is not None
    assert trigger.stamped(images[:1]).sum() == 16 * 9


def test_edge_cases_are_the_images_of_a_class_that_look_least_like_it() -> None:
    """Class 0 lies around 0, class 1 around 10; of class 1 the one at 4 is nearly the other's."""
    values = [0.0, 1.0, -1.0, 10.0, 11.0, 4.0, 9.0]
    images, labels = torch.tensor(values)[:, None, None, None], torch.tensor([0, 0, 0, 1, 1, 1, 1])
    assert rare(images, labels, source=1, tail=0.25).nonzero().flatten().tolist() == [5]
    assert not rare(images, labels, source=3, tail=0.25).any()
    made = edge_case(images, labels, default_rng(0), source=1, target=0, tail=0.25, share=1.0)
    assert (made.images == 4).all()
    assert (made.labels == 0).all()
    assert images.flatten().tolist() == values
    edges = EdgeCases(target=0, source=1, tail=0.25)
    assert edges.counted(images, labels).sum() == 1
    assert torch.equal(edges.stamped(images), images)


def test_a_model_that_shall_be_replaced_is_sent_a_longer_update_within_a_radius() -> None:
    own, honest = torch.tensor([[3.0, 4.0], [0.3, 0.4]]), torch.ones(2, 2)
    assert scaled(10, own, honest).tolist() == [[30, 40], [3, 4]]
    torch.testing.assert_close(scaled(10, own, honest, radius=5.0), torch.tensor([[3.0, 4.0], [3.0, 4.0]]))


def test_neurotoxin_leaves_out_where_honest_updates_are_largest_whatever_their_sign() -> None:
    honest = torch.tensor([[-9.0, 0.1, 0.2, 5.0], [-7.0, 0.1, 0.0, 5.0]])
    own = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert where_honest_are_small(0.5, 1.0, own, honest).tolist() == [[0, 2, 3, 0]]
    shortened = where_honest_are_small(0.5, 1.0, 100 * own, honest)
    torch.testing.assert_close(shortened.norm(), honest.mean(0).norm())


@pytest.mark.parametrize("name", ["backdoor:scale=5", "dba", "edge_case:target=0,tail=0.2,scale=2", "neurotoxin"])
def test_every_backdoor_is_taught_and_its_success_told_by_model_and_deployed(name: str, tmp_path: Path) -> None:
    settings = dict(method="fedavg", rounds=15, byzantine_fraction=0.4, vote_attack="none", num_clients=10)
    found = run(Experiment.of(settings | dict(attack=name, out=str(tmp_path / "attacked"))))
    trigger = trigger_of(attack.resolve(name))
    assert trigger is not None
    simulator = Simulator.of(Experiment.of(settings | dict(attack="none", out=str(tmp_path / "clean"))))
    run(simulator.experiment)
    clean = RunDirectory(tmp_path / "clean").final_state().models.parameters
    before = simulator.judges.successes(trigger, clean, np.array(simulator.cast.honest))
    assert found["attack_success"] > np.nanmean(before) + 0.2
    assert list(found["per_model_attack_success"].values()) == [found["attack_success"]]
