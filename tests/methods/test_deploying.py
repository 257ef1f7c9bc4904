"""Whatever a client makes of the list, it keeps what its own data likes best."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from lidfl.methods.deploying import alone, average, best, deploy, joined, soup, soups, tuned
from lidfl.types import Models, Parameters


@dataclass
class Line:
    """Models are points on a line; a client wants one place, and training takes a step towards another."""

    wants: float
    trains_to: float = 0.0
    judged: list[float] = field(default_factory=list)

    def losses(self, models: Models) -> NDArray[np.float64]:
        self.judged += models[:, 0].tolist()
        return np.abs(models[:, 0].double().numpy() - self.wants)

    def trained(self, model: Parameters, part: int) -> Parameters:
        return model + (self.trains_to - model).clamp(-1, 1)

    def first(self) -> Parameters:
        return torch.tensor([100.0])


def points(*places: float) -> Models:
    return torch.tensor(places, dtype=torch.float32)[:, None]


def test_the_best_is_the_papers_choice() -> None:
    assert best(points(5, 1, 9), Line(wants=2)).tolist() == [1]


def test_an_average_is_of_the_better_share() -> None:
    assert average(points(5, 1, 9, 3), Line(wants=2)).tolist() == [2]
    assert average(points(5, 1, 9, 3), Line(wants=2), share=0.1).tolist() == [1]


def test_a_soup_is_the_best_of_the_best_and_of_the_means_of_the_best() -> None:
    made = [float(model) for model in soups(points(0, 10, 2, 20, 4), Line(wants=0))]
    assert made == [0, 1, 4, pytest.approx(7.2)]
    assert soup(points(1, 3, 50), Line(wants=2)).tolist() == [2]
    assert soup(points(2, 3, 50), Line(wants=2)).tolist() == [2]


def test_what_is_not_finite_is_in_no_soup() -> None:
    class Wary(Line):
        def losses(self, models: Models) -> NDArray[np.float64]:
            return np.where(models[:, 0].numpy() > 1e6, np.inf, super().losses(models))

    assert [float(model) for model in soups(points(0, 1e30, 2), Wary(wants=0))] == [0, 1]


def test_tuning_stops_where_own_data_likes_it_best() -> None:
    assert tuned(points(10), Line(wants=7, trains_to=0), parts=8).tolist() == [7]
    assert tuned(points(10), Line(wants=12, trains_to=0), parts=8).tolist() == [10], "and may keep what it was"


def test_joining_is_never_worse_on_own_data_than_training_alone() -> None:
    for wants in (0.0, 60.0, 98.0, 150.0):
        own = Line(wants=wants, trains_to=50)
        taken, without = joined(points(3, 20), own, rounds=10), alone(own, 10)
        assert own.losses(taken[None])[0] <= own.losses(without[None])[0]
        assert own.losses(taken[None])[0] <= own.losses(points(3, 20)).min()


@pytest.mark.parametrize("name", list(deploy))
def test_a_list_of_one_is_enough_and_is_left_as_it_was(name: str) -> None:
    models = points(3)
    taken = deploy.resolve(name)(models, Line(wants=3), rounds=2)
    assert taken.tolist() == [3]
    assert models.tolist() == [[3]]
