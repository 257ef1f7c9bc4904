"""A node in this process that speaks Flower's fleet API with a key of its own, and may say what it likes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep, time
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.clientapp import ClientApp
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supernode.fleet_http_connection import http_request_response

from lidfl.flower.local.federation import LocalFederation


@dataclass
class FakeNode:
    """A connection to the SuperLink; what arrives is answered by hand, or by an app."""

    node_id: int
    calls: tuple[Any, ...]
    context: Context

    def next_message(self, seconds: float = 60) -> Message:
        """Wait for a request."""
        receive, _, _, _, pull, _, confirm = self.calls
        until = monotonic() + seconds
        while not (received := receive()):
            assert monotonic() < until, "no message came"
            sleep(0.05)
        envelope, tree = received
        run_id = envelope.metadata.run_id
        message = pull_and_inflate_object_from_tree(
            tree, lambda name: pull(run_id, name), lambda name: confirm(run_id, name), return_type=Message
        )
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    def send(self, reply: Message, *, upload: bool = True) -> None:
        """Hand in a reply, whoever it says it is from, and upload what it holds, or not."""
        _, send, _, _, _, push, _ = self.calls
        reply.metadata.__dict__["_message_id"] = reply.object_id
        wanted, session = send(reply, get_object_tree(reply), 0.0)
        for name, thing in get_all_nested_objects(reply).items():
            if name in wanted and upload:
                push(reply.metadata.run_id, session, name, thing.deflate())

    def send_raw(self, reply_to: Message, head: bytes) -> None:
        """Hand in a reply whose only object is these bytes."""
        _, send, _, _, _, push, _ = self.calls
        reply = Message(RecordDict(), reply_to=reply_to)
        name = get_object_id(head)
        reply.metadata.__dict__["_message_id"] = name
        wanted, session = send(reply, ObjectTree(object_id=name), 0.0)
        assert wanted == {name}
        push(reply.metadata.run_id, session, name, head)

    def instruct(self, victim: int, run_id: int, content: RecordDict) -> None:
        """Hand in an instruction for another node, as if the server had sent it."""
        metadata = Metadata(run_id, "", 1, victim, "", "0", time(), 60.0, "evaluate")
        self.send(make_message(metadata=metadata, content=content))

    def serve(self, app: ClientApp, stop: threading.Event) -> None:
        """Answer everything with an app, until told to stop."""
        while not stop.is_set():
            try:
                message = self.next_message(seconds=0.2)
            except AssertionError:
                continue
            self.send(app(message, self.context))


@contextmanager
def fake_node(federation: LocalFederation, client: int, port: int | None = None) -> Iterator[FakeNode]:
    """A node with a client's key, connected to the SuperLink or to what stands before it."""
    private = load_ssh_private_key((federation.home / f"node-{client}.key").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    address, ca = f"127.0.0.1:{port or federation.port}", (federation.home / "ca.crt").read_bytes()
    with http_request_response(address, False, ca, (private, private.public_key())) as (node_id, *calls):
        config: dict[str, Any] = {"partition-id": client, "num-partitions": federation.experiment.num_clients}
        yield FakeNode(node_id, tuple(calls), Context(0, node_id, config, RecordDict(), {}))
