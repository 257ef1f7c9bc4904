"""Whatever a client makes of the list, it keeps what its own data likes best."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from lidfl.methods.deploying import alike, average, best, deploy, differ, joined, soup, soups, trained_alone, tuned
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

    def values(self, models: Models) -> NDArray[np.float64]:
        """Twelve images that agree, so that any difference is beyond doubt."""
        return np.repeat(self.losses(models)[:, None], 12, axis=1)

    def trained(self, model: Parameters, part: int) -> Parameters:
        return model + (self.trains_to - model).clamp(-1, 1)

    def alone(self, rounds: int) -> Parameters:
        return trained_alone(self, rounds)

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
        taken, without = joined(points(3, 20), own, rounds=10), own.alone(10)
        assert own.losses(taken[None])[0] <= own.losses(without[None])[0]
        assert own.losses(taken[None])[0] <= own.losses(points(3, 20)).min()


def test_the_best_of_list_and_own_is_whichever_own_data_likes_better() -> None:
    def taken(wants: float) -> list[float]:
        own = Line(wants, trains_to=50)
        found: list[float] = deploy.resolve("or_alone")(points(3, 20), own, rounds=10).tolist()
        return found

    assert taken(3) == [3]
    assert taken(88) == [90]  # from 100 ten steps of one towards 50


class Noisy(Line):
    """Images that want places around the client's own: models less than a standard error apart look alike."""

    def values(self, models: Models) -> NDArray[np.float64]:
        wanted = self.wants + np.array([-8.0, -3.0, 0.0, 2.0, 9.0, -7.5, -2.5, 0.5, 1.5, 8.0])
        return np.asarray((models[:, :1].double().numpy() - wanted) ** 2)

    def losses(self, models: Models) -> NDArray[np.float64]:
        return np.asarray(self.values(models).mean(1))


def test_a_difference_counts_beyond_so_many_standard_errors() -> None:
    """Differences 0, 1, 2: mean 1, deviation 1, standard error 1/√3 = 0.577, so 1.73 of them."""
    lower, higher = np.zeros(3), np.array([0.0, 1.0, 2.0])
    assert differ(higher, lower, 1.7)
    assert not differ(higher, lower, 1.8)
    assert differ(np.array([0.0, np.inf, 0.0]), lower, 2.0)
    assert differ(np.array([1.0]), np.array([0.9]), 2.0), "one image: any difference counts"


def test_what_own_data_cannot_tell_apart_is_averaged_and_nothing_else() -> None:
    own = Noisy(wants=0)
    assert alike(points(0, 1, -1, 50), own).tolist() == [0]
    assert alike(points(0.5, 1.5, 50, -50), own).tolist() == [1]
    assert alike(points(0.5, 1.5, 50), own, errors=0.0).tolist() == [0.5], "with no doubt allowed it is the best"


def test_one_that_is_as_good_and_spoils_the_mean_is_left_out() -> None:
    """As a network does whose hidden units were permuted: here -30 and 30 are one function, and 0 is not."""

    class Mirrored(Noisy):
        def values(self, models: Models) -> NDArray[np.float64]:
            return super().values(models.abs())

    own = Mirrored(wants=30)
    assert abs(float(alike(points(30, -30), own))) == 30
    assert float(alike(points(30, -30, 31, 29), own)) == pytest.approx(30)


def test_without_doubt_alone_is_better_where_the_list_serves_others() -> None:
    assert joined(points(0, 1), Noisy(wants=100), rounds=1).tolist() == [100]
    assert joined(points(99, 101), Noisy(wants=100), rounds=1).tolist() == [100]


class FewImages(Noisy):
    """Two images, of which one hardly tells good from bad: a spread of two says nothing."""

    def values(self, models: Models) -> NDArray[np.float64]:
        off = np.abs(models[:, :1].double().numpy() - self.wants)
        return np.hstack([off, 0.01 * off])


def test_to_whoever_has_hardly_any_images_nothing_is_alike_that_fifty_would_tell_apart() -> None:
    """Differences 40 and 0.4: mean 20.2, deviation 28.0, so two errors are 39.6 of two images and 7.9 of fifty."""
    own = FewImages(wants=0)
    bad, good = own.values(points(40, 0))
    assert not differ(bad, good, 2.0)
    assert differ(bad, good, 2.0, 50)
    assert alike(points(0, 40), own).tolist() == [0]
    assert joined(points(0, 40), own, rounds=1).tolist() == [0]


def test_fewer_than_ten_images_are_no_ground_to_leave_what_is_shared() -> None:
    class Few(Line):
        def values(self, models: Models) -> NDArray[np.float64]:
            return super().values(models)[:, :9]

    assert joined(points(0, 1), Line(wants=100), rounds=1).tolist() == [100]
    assert joined(points(0, 1), Few(wants=100), rounds=1).tolist() == [1]


@pytest.mark.parametrize("name", list(deploy))
def test_a_list_of_one_is_enough_and_is_left_as_it_was(name: str) -> None:
    models = points(3)
    taken = deploy.resolve(name)(models, Line(wants=3), rounds=2)
    assert taken.tolist() == [3]
    assert models.tolist() == [[3]]
