"""A node's guard, and how often it asks for work."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.flower import node as node_module
from lidfl.flower.node import Guard, Pace, let_in, refuse
from lidfl.flower.signing import Verifier, make_server_key, public_key_of
from tests.flower.test_signing import public, request


def received(message: Any) -> tuple[Any, Any]:
    """A message as Flower hands it to a SuperNode: its head, and the tree of its objects, none of them fetched."""
    return message, SimpleNamespace(children=[SimpleNamespace(object_id=message.content.object_id)])


def test_forty_made_up_instructions_are_dropped_in_one_look_and_the_servers_is_let_through(tmp_path: Path) -> None:
    make_server_key(tmp_path / "server.key")
    make_server_key(tmp_path / "liar.key")
    mine = request(tmp_path / "server.key")
    queue = [received(request(tmp_path / "liar.key")) for _ in range(20)]
    queue += [received(request(None)) for _ in range(20)] + [received(mine), received(mine)]
    come = threading.Event()
    verifier = Verifier(public_key_of(public(tmp_path / "server.key")))
    guard = Guard(lambda: queue.pop(0) if queue else None, verifier, 7, Pace(0.5, 3), come)
    message, _ = guard.receive()
    assert message is mine
    assert come.is_set()
    assert guard.dropped == 40
    assert guard.receive() is None, "what was obeyed is not obeyed again"
    assert guard.dropped == 41


def test_a_message_without_content_or_with_two_is_dropped(tmp_path: Path) -> None:
    make_server_key(tmp_path / "server.key")
    message = request(tmp_path / "server.key")
    trees = [SimpleNamespace(children=[]), SimpleNamespace(children=[received(message)[1].children[0]] * 2)]
    queue = [(message, tree) for tree in trees]
    verifier = Verifier(public_key_of(public(tmp_path / "server.key")))
    guard = Guard(lambda: queue.pop(0) if queue else None, verifier, 7, Pace(0.5, 3), threading.Event())
    assert guard.receive() is None
    assert guard.dropped == 2


def test_a_node_asks_soon_after_it_had_work_and_then_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(node_module, "sleep", slept.append)
    pace = Pace(quickest=0.5, idle=3.0)
    for _ in range(10):
        pace.sleep(3)
    assert slept[0] == 0.5
    assert slept == sorted(slept)
    assert slept[-1] == 3.0
    pace.had_work()
    pace.sleep(3)
    assert slept[-1] == 0.5
    pace.sleep(0.5)
    assert slept[-1] == 0.1, "whether the client app has answered costs nobody else anything"


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        monkeypatch.setattr(node_module, "monotonic", lambda: self.now)
        monkeypatch.setattr(node_module, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def rounds(pace: Pace, clock: Clock, apart: float, count: int = 3) -> None:
    """Work comes so many times, so far apart."""
    for _ in range(count):
        clock.now += apart
        pace.had_work()


def test_a_node_that_is_asked_regularly_looks_often_until_the_next_request_is_overdue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    pace = Pace(quickest=0.5, idle=3.0)
    rounds(pace, clock, apart=5.0)
    while clock.slept[-1:] != [3.0]:
        pace.sleep(3)
    assert clock.slept[:16] == [0.5] * 16, "7.5 seconds, half as long again as the last time, and one look more"
    assert clock.slept[16:] == [0.75, 1.125, 1.6875, 2.53125, 3.0]


def test_a_node_that_is_rarely_asked_does_not_look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = Pace(quickest=0.5, idle=3.0)
    rounds(pace, clock, apart=60.0)
    for _ in range(6):
        pace.sleep(3)
    assert clock.slept == [0.5, 0.75, 1.125, 1.6875, 2.53125, 3.0]


def test_a_node_whose_key_is_not_registered_yet_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(node_module, "sleep", slept.append)
    answers = iter([False, False, True])

    def connect() -> str:
        if not next(answers):
            refuse(305, "Failed to activate SuperNode.")
        return "connected"

    assert let_in(connect) == "connected"
    assert slept == [10, 10]
