"""How many messages are out at a time, in a world whose clock is turned by hand."""

from itertools import pairwise

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.flower import codec
from lidfl.flower.codec import Ask
from lidfl.flower.fleet import Fleet, Limits
from lidfl.flower.window import MOST, SLOW
from tests.flower.test_patience import Clock, SlowGrid, always, clock

__all__ = ["clock"]
LEAST = 8
STARTED_AGAIN = 30
"""Seconds after which Flower starts a client app anew that has not reported."""


def votes(fleet: Fleet, nodes: list[int], clock: Clock, rounds: int) -> list[float]:
    """How long each of some votes takes, in which all nodes are asked."""
    times = [clock.now]
    for number in range(rounds):
        contents = {node: codec.pack_ask(Ask("vote")) for node in nodes}
        list(fleet.ask(contents, "evaluate", str(number), 100))
        times.append(clock.now)
    return [after - before for before, after in pairwise(times)]


def fleet_of(grid: SlowGrid) -> Fleet:
    return Fleet(grid, Limits(in_flight=LEAST, deadline=120.0, poll=0.2, patience=10.0, share=1 / 3))


def test_twenty_quick_nodes_are_soon_asked_all_at_once(clock: Clock) -> None:
    grid = SlowGrid(clock, {node: always(2.0) for node in range(20)})
    seconds = votes(fleet_of(grid), list(range(20)), clock, 3)
    assert seconds[0] > 4, "eight at a time to begin with"
    assert seconds[1] == seconds[2] < 2.5


@pytest.mark.parametrize("service", [0.3, 0.5, 1.0, 2.0])
def test_where_one_is_served_after_the_other_none_waits_until_flower_starts_it_again(
    clock: Clock, service: float
) -> None:
    free = [clock.now]

    def after_the_others() -> float:
        free[0] = max(free[0], clock.now) + service
        return free[0] - clock.now

    fleet = fleet_of(SlowGrid(clock, dict.fromkeys(range(60), after_the_others)))
    sizes = []
    for _ in range(40):
        votes(fleet, list(range(60)), clock, 1)
        sizes.append(fleet.window.size)
    assert max(sizes) * service < STARTED_AGAIN
    assert service > 0.5 or max(sizes) > LEAST, "and where there is room, it is used"


def test_slow_replies_bring_the_number_down_and_never_below_the_first(clock: Clock) -> None:
    pace = [1.0]
    grid = SlowGrid(clock, {node: lambda: pace[0] for node in range(40)})
    fleet = fleet_of(grid)
    votes(fleet, list(range(40)), clock, 2)
    assert fleet.window.size == MOST * LEAST, "however many are quick"
    pace[0] = SLOW + 1
    votes(fleet, list(range(40)), clock, 1)
    assert fleet.window.size == LEAST


@pytest.mark.parametrize("liars", [1, 4, 12])
def test_liars_who_never_answer_leave_the_others_as_many_places_as_before(clock: Clock, liars: int) -> None:
    delays = {node: always(2.0) for node in range(20)} | {node: always(1e9) for node in range(20, 20 + liars)}
    fleet = fleet_of(SlowGrid(clock, delays))
    fixed = fleet_of(SlowGrid(clock, delays))
    fixed.window.answered = lambda seconds: None  # type: ignore[method-assign]
    assert sum(votes(fleet, list(delays), clock, 20)) <= sum(votes(fixed, list(delays), clock, 20))
    assert fleet.window.size >= LEAST
