"""What a fleet lets in: each node's own reply, in time, and not too large."""

from collections import Counter
from time import sleep

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from flwr.app import Context, Message, RecordDict

from lidfl.flower import codec
from lidfl.flower.codec import Ask, in_envelope, secret_of
from lidfl.flower.fleet import Fleet, Limits
from lidfl.flower.window import MOST
from tests.flower.local_grid import LocalGrid
from tests.flower.nodes import QUICK, ballot, replying, silent


def raising(_message: Message, _context: Context) -> None:
    raise RuntimeError("out of order")


def ask_all(grid: LocalGrid, limits: Limits = QUICK) -> tuple[dict[int, RecordDict], Counter[str]]:
    fleet = Fleet(grid, limits)
    contents = {node: codec.pack_ask(Ask("vote")) for node in fleet.nodes()}
    found = dict(fleet.ask(contents, "evaluate", "0", most_bytes=100))
    return found, fleet.refused


def test_a_node_that_is_silent_or_fails_costs_only_its_own_reply() -> None:
    found, refused = ask_all(LocalGrid({1: (silent, {}), 2: (replying(ballot), {}), 3: (raising, {})}))
    assert list(found) == [2]
    assert refused == {"late": 1, "failed": 1}


def test_a_reply_counts_only_with_the_secret_of_its_own_request() -> None:
    def without(message: Message, _: Context) -> Message:
        return Message(ballot(), reply_to=message)

    def guessed(message: Message, _: Context) -> Message:
        return Message(in_envelope(ballot(), "0" * 32, 60.0), reply_to=message)

    seen: list[Message] = []

    def replayed(message: Message, _: Context) -> Message:
        seen.append(message)
        return Message(in_envelope(ballot(), secret_of(seen[0]), 60.0), reply_to=message)

    grid = LocalGrid({1: (without, {}), 2: (guessed, {}), 3: (replayed, {})})
    found, refused = ask_all(grid)
    assert list(found) == [3]
    found, refused = ask_all(grid)
    assert not found, "an old secret is worth nothing"
    assert refused["forged"] == 6, "each is asked once more"


def test_each_node_has_a_secret_of_its_own_in_every_request() -> None:
    grid = LocalGrid({node: (replying(ballot), {}) for node in range(1, 6)})
    for _ in range(3):
        ask_all(grid)
    secrets = {secret_of(message) for message in grid.pushed}
    assert len(secrets) == 15


def test_messages_in_flight_are_bounded_and_live_as_long_as_their_deadline() -> None:
    def slowly(_message: Message) -> RecordDict:
        sleep(0.05)
        return ballot()

    grid = LocalGrid({node: (replying(slowly), {}) for node in range(1, 41)})
    found, _ = ask_all(grid, Limits(in_flight=3, deadline=5.0, poll=0.01))
    assert len(found) == 40
    assert grid.most_in_flight == 3 * MOST, "all of them were quick"
    assert {message.metadata.ttl for message in grid.pushed} == {5.0}
