"""What our SuperLink takes from a node: replies, in its own name, of the size of a reply."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from fastapi import HTTPException
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.linkstate.sql_linkstate import SqlLinkState
from flwr.supercore.corestate.sql_corestate import SqlCoreState
from flwr.superlink import main as superlink_main

from lidfl.flower import link as link_module
from lidfl.flower.link import Guard, run_superlink, seldom, verdict, within


@pytest.fixture
def guard() -> Guard:
    """A guard before handlers that take everything."""
    guard = Guard()
    open_to_all: Any = lambda *_, **__: "taken"  # noqa: E731
    guard._push_messages = guard._push_object = guard._server_push_object = open_to_all
    return guard


def announce(node: int = 7, tree: ObjectTree | None = None, **head: Any) -> PushMessagesRequest:
    usual: dict[str, Any] = dict(src_node_id=7, dst_node_id=1, reply_to_message_id="asked", message_id="m")
    message = Message(metadata=Metadata(**(usual | head)))
    trees = [tree or ObjectTree(object_id="m", children=[ObjectTree(object_id="c")])]
    return PushMessagesRequest(node=Node(node_id=node), messages_list=[message], message_object_trees=trees)


def test_a_reply_in_its_own_name_is_taken(guard: Guard) -> None:
    assert guard.push_messages(announce(), None) == "taken"


@pytest.mark.parametrize(
    "request_",
    [
        announce(src_node_id=8),
        announce(src_node_id=1),
        announce(reply_to_message_id=""),
        announce(reply_to_message_id="", src_node_id=1, dst_node_id=8),
        announce(dst_node_id=8),
        announce(tree=ObjectTree(object_id="another")),
        announce(tree=ObjectTree(object_id="m", children=[ObjectTree(object_id=str(n)) for n in range(100)])),
        PushMessagesRequest(node=Node(node_id=7)),
    ],
    ids=[
        "another's name",
        "the server's",
        "no reply",
        "an instruction",
        "to a node",
        "other objects",
        "many",
        "none",
    ],
)
def test_what_is_no_reply_of_the_node_itself_is_refused(guard: Guard, request_: PushMessagesRequest) -> None:
    with pytest.raises(HTTPException):
        guard.push_messages(request_, None)


def piece(node: int, session: str, size: int) -> PushObjectRequest:
    return PushObjectRequest(node=Node(node_id=node), session_id=session, object_content=bytes(size))


def test_a_reply_may_be_as_large_as_what_the_server_sent_and_no_larger(guard: Guard) -> None:
    with pytest.raises(HTTPException):
        guard.push_object(piece(7, "s", 100_000), None)
    for _ in range(4):
        guard.server_push_object(piece(1, "server", 1_000_000), None, None)
    for _ in range(4):
        assert guard.push_object(piece(7, "t", 1_000_000), None) == "taken"
    with pytest.raises(HTTPException):
        guard.push_object(piece(7, "t", 1_000_000), None)
    assert guard.push_object(piece(8, "t", 1_000_000), None) == "taken", "each node has a session of its own"


def test_however_many_uploads_are_begun_little_is_remembered(guard: Guard) -> None:
    for number in range(20_000):
        guard.push_object(piece(7, str(number), 1), None)
    assert len(guard.nodes.bytes) == 10_000


def test_a_tree_is_counted_no_further_than_it_may_go() -> None:
    endless: Any = SimpleNamespace()
    endless.children = [endless, endless]
    assert not within(endless, 50)


@pytest.mark.parametrize(
    ("path", "client", "length", "status"),
    [
        ("/v1/fleet/pull-messages", "10.0.0.9", b"100", 0),
        ("/v1/fleet/push-object", "10.0.0.9", b"100000000", 413),
        ("/v1/fleet/push-object", "127.0.0.1", b"100000000", 413),
        ("/v1/fleet/push-object", "10.0.0.9", None, 413),
        ("/v1/fleet/push-object", "10.0.0.9", b"-1", 413),
        ("/v1/control/register-node", "10.0.0.9", b"100", 403),
        ("/v1/runtime/pull-messages", "10.0.0.9", b"100", 403),
        ("/docs", "10.0.0.9", None, 403),
        ("/v1/control/register-node", "127.0.0.1", b"100", 0),
        ("/v1/runtime/push-object", "127.0.0.1", b"100000000", 0),
    ],
)
def test_who_may_ask_what(path: str, client: str, length: bytes | None, status: int) -> None:
    headers = [(b"content-length", length)] if length is not None else []
    assert verdict({"type": "http", "path": path, "client": (client, 5), "headers": headers}) == status


def test_what_is_done_seldom_is_done_at_once_and_then_once_in_so_many_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [50.0]
    done: list[float] = []
    monkeypatch.setattr(link_module, "monotonic", lambda: now[0])
    work = seldom(done.append, 1.0)
    for now[0] in (50.0, 50.5, 50.9, 51.0, 51.9, 60.0):
        work(now[0])
    assert done == [50.0, 51.0, 60.0]


def test_our_superlink_looks_for_dead_tasks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    monkeypatch.setattr(SqlCoreState, "_cleanup_expired_task_tokens", looks.append)
    monkeypatch.setattr(Guard, "install", lambda _: None)
    monkeypatch.setattr(superlink_main, "create_app", superlink_main.create_app)
    monkeypatch.setattr(link_module, "flower_superlink", lambda: None)
    monkeypatch.setattr("sys.argv", ["lidfl"])
    run_superlink([])
    state = object.__new__(SqlLinkState)
    for _ in range(100):
        state._cleanup_expired_task_tokens()
    assert looks == [state]
