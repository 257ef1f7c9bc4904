"""What slow nodes can cost, in a world whose clock is turned by hand."""

from collections.abc import Callable

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from flwr.app import Message

from lidfl.flower import codec, exchange, fleet
from lidfl.flower.codec import Ask
from lidfl.flower.exchange import Conduct
from lidfl.flower.fleet import Fleet, Limits
from lidfl.flower.patience import LEEWAY
from tests.flower.local_grid import LocalGrid
from tests.flower.nodes import ballot

LIMITS = Limits(in_flight=8, deadline=120.0, poll=0.2, patience=10.0, share=1 / 3)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class SlowGrid(LocalGrid):
    """Nodes that answer so many seconds after they were asked."""

    def __init__(self, clock: Clock, delays: dict[int, Callable[[], float]]) -> None:
        super().__init__({node: (self.reply, {}) for node in delays})
        self.clock = clock
        self.delays = delays
        self.due: dict[str, float] = {}

    @staticmethod
    def reply(message: Message, _: object) -> Message:
        return codec.reply_with(ballot(), message)

    def push_messages(self, messages: object) -> list[str]:
        names = [*super().push_messages(messages)]  # type: ignore[arg-type]
        for name in names:
            node = self.pushed[int(name.split("-")[1])].metadata.dst_node_id
            self.due[name] = self.clock.now + self.delays[node]()
        return names

    def pull_messages(self, message_ids: object) -> list[Message]:
        ready = [name for name in message_ids if self.due[name] <= self.clock.now]  # type: ignore[attr-defined]
        return [*super().pull_messages(ready)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    turned = Clock()
    monkeypatch.setattr(exchange, "monotonic", turned.monotonic)
    monkeypatch.setattr(exchange, "sleep", turned.sleep)
    monkeypatch.setattr(fleet, "monotonic", turned.monotonic)
    return turned


def always(seconds: float) -> Callable[[], float]:
    return lambda: seconds


def play(clock: Clock, delays: dict[int, Callable[[], float]], rounds: int) -> tuple[list[float], Fleet]:
    """Rounds in which all are asked; how long each took."""
    whole = Fleet(SlowGrid(clock, delays), LIMITS)
    seconds = []
    for number in range(rounds):
        began = clock.now
        contents = {node: codec.pack_ask(Ask("vote")) for node in delays}
        heard = [node for node, _ in whole.ask(contents, "evaluate", str(number), 100)]
        seconds.append(clock.now - began)
        assert set(heard) <= set(delays)
    return seconds, whole


def test_quick_nodes_wait_for_nobody(clock: Clock) -> None:
    seconds, whole = play(clock, {node: always(3.0) for node in range(6)}, 5)
    assert max(seconds) < 3.5
    assert not whole.refused


def test_a_node_that_answers_just_before_the_deadline_costs_one_deadline_and_then_little(clock: Clock) -> None:
    delays = {node: always(3.0) for node in range(5)} | {5: always(119.0)}
    seconds, whole = play(clock, delays, 60)
    assert max(seconds) < 121
    assert sum(seconds) < 60 * 3.2 * 1.5 + 130, "half as long again, and one deadline"
    assert sorted(seconds)[30] < 4.5
    assert whole.conduct[5].refused["late"] > 50


def test_four_slow_liars_of_six_cannot_take_turns_to_cost_more(clock: Clock) -> None:
    """Each is slow in another round; together they get one credit each, and half of the time that passes."""
    rounds = iter(range(10**6))

    def in_turn(liar: int) -> Callable[[], float]:
        return lambda: 119.0 if next(rounds) // 4 % 4 == liar else 3.0

    delays = {0: always(3.0), 1: always(3.0)} | {2 + liar: in_turn(liar) for liar in range(4)}
    seconds, _ = play(clock, delays, 100)
    assert sum(seconds) < 100 * 3.2 * 1.5 * LEEWAY + 4 * 120


def test_slow_liars_that_are_the_majority_do_not_stretch_the_base(clock: Clock) -> None:
    delays = {0: always(3.0), 1: always(3.0)} | {node: always(119.0) for node in range(2, 6)}
    seconds, whole = play(clock, delays, 40)
    assert sum(seconds) < 40 * 3.2 * 1.5 + 130, "they use up their credit together"
    assert whole.conduct[0].refused == whole.conduct[1].refused == {}


def test_quick_liars_cannot_push_honest_nodes_into_debt(clock: Clock) -> None:
    """Four of six answer at once; the honest two need 9.5 s, less than the patience, and are always heard."""
    delays = {0: always(9.5), 1: always(9.5)} | {node: always(0.0) for node in range(2, 6)}
    _, whole = play(clock, delays, 200)
    assert not whole.refused
    assert not whole.patience.used


def test_when_all_honest_nodes_are_slow_they_are_waited_for(clock: Clock) -> None:
    """Training may take a minute: as many as are taken to be honest set the pace."""
    delays = {node: always(60.0 + node) for node in range(6)}
    _, whole = play(clock, delays, 10)
    assert not whole.refused


def test_eight_nodes_that_do_not_answer_leave_places_for_the_others(clock: Clock) -> None:
    delays = {node: always(1e9) for node in range(8)} | {node: always(3.0) for node in range(8, 20)}
    began = clock.now
    whole = Fleet(SlowGrid(clock, delays), LIMITS)
    heard: dict[int, float] = {}
    contents = {node: codec.pack_ask(Ask("vote")) for node in delays}
    for node, _ in whole.ask(contents, "evaluate", "0", 100):
        heard[node] = clock.now - began
    assert sorted(heard) == list(range(8, 20))
    assert max(heard.values()) < 25, "not a deadline"
    again = clock.now
    for node, _ in whole.ask(contents, "evaluate", "1", 100):
        heard[node] = clock.now - again
    assert max(heard.values()) < 8, "from now on the slow are asked last"


def test_a_slow_node_that_is_the_only_one_asked_costs_little_after_the_first_time(clock: Clock) -> None:
    """LiD-FL lets one client train: a slow liar is drawn now and then."""
    whole = Fleet(SlowGrid(clock, {1: always(3.0), 2: always(119.0)}), LIMITS)
    costs = []
    for number in range(20):
        began = clock.now
        node = 1 + number % 2
        list(whole.ask({node: codec.pack_ask(Ask("train"))}, "train", str(number), 100))
        costs.append(clock.now - began)
    assert max(costs[4:]) < 30
    assert sum(costs) < 20 * 11 + 240


def test_who_was_in_debt_is_trusted_again_after_a_while(clock: Clock) -> None:
    slow = iter([True] * 3 + [False] * 10**6)
    delays = {node: always(3.0) for node in range(5)}
    delays[5] = lambda: 119.0 if next(slow) else 3.3
    _, whole = play(clock, delays, 300)
    assert 5 not in whole.patience.in_debt
    assert whole.conduct[5].answered > 280, "though it is a little slower than the others"


def test_a_slow_node_that_is_drawn_first_and_again_costs_two_deadlines_at_most(clock: Clock) -> None:
    """Nobody else has trained yet, so that nobody knows how long it takes; it never answers."""
    whole = Fleet(SlowGrid(clock, {1: always(1e9)}), LIMITS)
    whole.conduct = {node: Conduct() for node in range(6)}
    began = clock.now
    for number in range(10):
        list(whole.ask({1: codec.pack_ask(Ask("train"))}, "train", str(number), 100))
    assert clock.now - began < 2 * 120 + 8 * 11


def test_nor_does_it_cost_more_if_it_answers_just_before_the_deadline(clock: Clock) -> None:
    """What it takes itself is no measure of what is usual."""
    whole = Fleet(SlowGrid(clock, {1: always(119.0)}), LIMITS)
    whole.conduct = {node: Conduct() for node in range(6)}
    began = clock.now
    for number in range(10):
        list(whole.ask({1: codec.pack_ask(Ask("train"))}, "train", str(number), 100))
    assert clock.now - began < 2 * 120 + 8 * 11


def test_an_honest_node_that_needs_long_to_train_is_heard_though_nobody_has_trained_before(clock: Clock) -> None:
    """Each is drawn alone: the first shows how long it takes, and from then on nobody is slow."""
    whole = Fleet(SlowGrid(clock, {node: always(60.0) for node in range(6)}), LIMITS)
    for number in range(30):
        asked = {number % 6: codec.pack_ask(Ask("train"))}
        assert [node for node, _ in whole.ask(asked, "train", str(number), 100)] == [number % 6]
    assert not whole.refused
