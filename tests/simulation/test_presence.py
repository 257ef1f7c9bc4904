"""Clients come and go: honest ones by chance and for a while, Byzantine ones when it suits them."""

import numpy as np
import pytest

from lidfl import Experiment
from lidfl.simulation.cast import Cast, draw_audience
from lidfl.simulation.presence import SPELL, Presence


def presence(**settings: object) -> tuple[Presence, Cast]:
    experiment = Experiment.of(dict(num_clients=50, byzantine_fraction=0.6, seed=3) | settings)
    cast = Cast.of(experiment)
    return Presence(experiment, cast), cast


def test_all_are_there_unless_told_otherwise() -> None:
    who, _ = presence()
    assert who.absent(0) == who.absent(17) == frozenset()


@pytest.mark.parametrize("availability", [0.3, 0.7])
@pytest.mark.parametrize("kind", ["honest", "byzantine"])
def test_those_who_come_and_go_are_there_so_much_of_the_time(availability: float, kind: str) -> None:
    who, cast = presence(availability=availability, absent=kind)
    moving = set(cast.honest) if kind == "honest" else set(cast.byzantine)
    away = [who.absent(moment) for moment in range(300)]
    assert all(clients <= moving for clients in away)
    assert np.mean([len(clients) / len(moving) for clients in away]) == pytest.approx(1 - availability, abs=0.03)


def test_an_absence_lasts_a_while() -> None:
    who, cast = presence(availability=0.5, absent="honest")
    client = cast.honest[0]
    there = "".join("-" if client in who.absent(moment) else "x" for moment in range(60)).strip("-x"[0])
    spells = [len(spell) for spell in there.split("x") if spell]
    assert all(spell % SPELL == 0 for spell in spells[:-1])


def test_byzantine_clients_come_together_when_few_honest_ones_are_there() -> None:
    who, cast = presence(availability=0.7)
    seen = set()
    for moment in range(200):
        away = who.absent(moment)
        few = len(away & set(cast.honest)) > 0.3 * len(cast.honest)
        assert (away & cast.byzantine) == (frozenset() if few else cast.byzantine)
        seen.add(few)
    assert seen == {True, False}


def test_who_is_there_depends_on_the_moment_alone() -> None:
    (one, _), (other, _) = presence(availability=0.5), presence(availability=0.5)
    assert [one.absent(9), one.absent(2)] == [other.absent(moment) for moment in (9, 2)]


def test_results_are_averaged_over_all_clients_and_of_a_great_many_over_a_sample_that_is_the_same_each_time() -> (
    None
):
    assert draw_audience(Experiment(num_clients=10_000)).tolist() == [*range(10_000)]
    many = Experiment(num_clients=20_000, partition="drawn", seed=3)
    sample = draw_audience(many)
    assert len(set(sample.tolist())) == 10_000
    assert sample.tolist() == sorted(sample.tolist()) == draw_audience(many).tolist()
    # Every second client on average: the mean of the sample is within five of its deviations, 20,000/√(12·20,000).
    assert abs(sample.mean() - 9_999.5) < 5 * 20_000 / (12 * 20_000) ** 0.5
    assert sample.tolist() != draw_audience(many.with_settings(seed=4)).tolist()
