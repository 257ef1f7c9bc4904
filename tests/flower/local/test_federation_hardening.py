"""What a registered node cannot do to a server and to other nodes: a real SuperLink, TLS and node keys on."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

import numpy as np
from flwr.app import Message
from flwr.clientapp import ClientApp

from lidfl import RunDirectory
from lidfl.flower import client_app
from lidfl.flower.codec import Ask, Reply, in_envelope, pack_ask, pack_reply, read_ask, reply_with
from lidfl.flower.local.federation import LocalFederation
from lidfl.flower.local.shares import FiledTask
from tests.flower.fake_node import FakeNode, fake_node
from tests.flower.local.scenes import PlainFederation, answer_until_vote, finish, nodes, play, serving, three_keys

pytestmark = [pytest.mark.federation, pytest.mark.filterwarnings("ignore")]

MALFORMED = [
    b"Message  20\0\x0a\xff\xff\xff\xff\x0f" + bytes(14),
    b"Message  20\0" + b"\x0b" * 20,
    b"ConfigRecord  20\0" + b"\xff" * 20,
    b"RecordDict  20\0" + b"[" * 20,
    b"RecordDict  50000\0" + b"[" * 50_000,
    b"ArrayChunk  20\0" + bytes(20),
]


@pytest.fixture(scope="module", params=[PlainFederation, LocalFederation], ids=["Flower's SuperLink", "ours"])
def federation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalFederation]:
    with three_keys(request.param, tmp_path_factory.mktemp("hardening") / "run") as local:
        yield local


def test_malformed_bytes_in_a_reply_are_one_refusal_and_the_run_goes_on(federation: LocalFederation) -> None:
    app = client_app(FiledTask(str(federation.home / "data")))
    with nodes(federation, app) as (honest, liar), serving(honest, app):
        out = play(federation, "malformed", rounds=len(MALFORMED))
        for content in MALFORMED:
            liar.send_raw(answer_until_vote(liar, app), content)
        lines = finish(out)
    assert len(lines) == len(MALFORMED)
    for line in lines:
        assert line["refused"] == {"garbage": 1}
        assert sum(line["votes"].values()) == 2


def test_instructions_that_another_node_makes_up_are_not_obeyed_and_hold_up_nobody(
    federation: LocalFederation,
) -> None:
    """The victim is a real node, `lidfl node`; forty instructions reach it while a vote is on its way."""
    app = client_app(FiledTask(str(federation.home / "data")))
    federation.start_node(1)
    try:
        with fake_node(federation, 0) as other, fake_node(federation, 2) as liar, serving(other, app):
            out = play(federation, "injected", rounds=3)
            taken = flood(liar, app, out)
            lines = finish(out)
    finally:
        federation.processes["node-1"].terminate()  # kindly, so that Flower lets its key in again at once
        federation.processes["node-1"].wait(timeout=30)
    assert taken == (40 if isinstance(federation, PlainFederation) else 0)
    assert [sum(line["votes"].values()) for line in lines] == [3, 3, 3], "nobody's ballot is late"
    log = (federation.logs / "node-1.log").read_text()
    assert log.count("Receiving: evaluate") == 3, "three votes, and no instruction of another node's"
    assert ("dropped a message: it has no signature" in log) == isinstance(federation, PlainFederation)


def flood(liar: FakeNode, app: ClientApp, out: Path) -> int:
    """Answer honestly, but in the first round send forty instructions to node 1; how many Flower took."""
    vote = answer_until_vote(liar, app)
    victim = json.loads((out / "nodes.json").read_text())["1"]
    taken = 0
    for _ in range(40):
        content = in_envelope(pack_ask(Ask("vote", models=read_ask(vote.content).models)), "0" * 32, 60.0)
        try:
            liar.instruct(victim, vote.metadata.run_id, content)
            taken += 1
        except httpx.HTTPStatusError:
            continue
    liar.send(app(vote, liar.context))
    with serving(liar, app):
        finish(out)
    return taken


def test_an_instruction_to_the_server_is_taken_for_nobodys_reply(federation: LocalFederation) -> None:
    app = client_app(FiledTask(str(federation.home / "data")))
    with nodes(federation, app) as (honest, liar), serving(honest, app):
        out = play(federation, "to-the-server")
        for _ in range(2):
            message = answer_until_vote(liar, app)
            for _ in range(5):
                try:
                    liar.instruct(1, message.metadata.run_id, pack_reply(Reply("ballot", ballot=(0,))))
                except httpx.HTTPStatusError:
                    assert not isinstance(federation, PlainFederation)
            liar.send(app(message, liar.context))
        lines = finish(out)
    assert [line["refused"] for line in lines] == [{}, {}]
    assert [sum(line["votes"].values()) for line in lines] == [3, 3]


def test_our_superlink_takes_a_reply_only_from_the_node_that_was_asked_and_stores_nothing_huge(
    federation: LocalFederation,
) -> None:
    if isinstance(federation, PlainFederation):
        pytest.skip("Flower's own takes both; test_federation_security.py has what the server makes of it")
    app = client_app(FiledTask(str(federation.home / "data")))
    with nodes(federation, app) as (victim, liar):
        out = play(federation, "in-anothers-name")
        waiting: list[Message] = []
        thread = threading.Thread(target=lambda: waiting.append(answer_until_vote(victim, app)))
        thread.start()
        mine = answer_until_vote(liar, app)
        thread.join()
        lie = in_envelope(pack_reply(Reply("ballot", ballot=(0,))), "0" * 32, 60.0)
        with pytest.raises(httpx.HTTPStatusError, match="400"):
            liar.send(Message(lie, reply_to=waiting[0]))
        before = (federation.home / "state.db").stat().st_size
        huge = pack_reply(Reply("trained", update=np.ones(10_000_000, dtype=np.float32)))
        with pytest.raises(httpx.HTTPStatusError, match="413"):
            liar.send(reply_with(huge, mine))
        assert (federation.home / "state.db").stat().st_size < before + 1_000_000
        victim.send(app(waiting[0], victim.context))
        with serving(victim, app):
            liar.send(app(answer_until_vote(liar, app), liar.context))
            lines = finish(out)
    assert [line["refused"] for line in lines] == [{"late": 1}, {}], "the liar has spoilt its own reply"


@pytest.mark.parametrize("how", ["just before the deadline", "announced, never uploaded", "silent"])
def test_a_slow_node_costs_one_deadline_once_and_then_little(federation: LocalFederation, how: str) -> None:
    """Deadline 30 s, patience 4 s, eight rounds; the honest two are quick."""
    if not isinstance(federation, PlainFederation):
        pytest.skip("the server's matter, not the SuperLink's")
    app = client_app(FiledTask(str(federation.home / "data")))
    with nodes(federation, app) as (honest, liar), serving(honest, app):
        out = play(federation, f"slow-{how.split()[0]}", deadline=30.0, rounds=8, patience=4.0)
        stop = threading.Event()
        thread = threading.Thread(target=slowly, args=(liar, app, how, stop), daemon=True)
        thread.start()
        finish(out, seconds=600)
        stop.set()
        thread.join()
    records = list(RunDirectory(out).records())
    seconds = [record.seconds for record in records]
    print(f"{how}: {[round(s, 1) for s in seconds]}")  # noqa: T201
    # A round has two requests. One deadline at first, one credit in all, and then what the patience allows.
    assert sum(seconds) < 8 * 2 * 4 * 1.5 + 2 * 30
    assert sorted(seconds)[3] < 15


def slowly(node: FakeNode, app: ClientApp, how: str, stop: threading.Event) -> None:
    """Say hello, and then answer late, or in part, or not at all."""
    while not stop.is_set():
        try:
            message = node.next_message(seconds=0.5)
        except AssertionError:
            continue
        if read_ask(message.content).kind == "hello":
            node.send(app(message, node.context))
        elif how == "announced, never uploaded":
            node.send(reply_with(pack_reply(Reply("ballot", ballot=(0,))), message), upload=False)
        elif how == "just before the deadline" and not stop.wait(29.0):
            node.send(app(message, node.context))
