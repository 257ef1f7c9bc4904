"""Flower's Grid without processes: messages go to client apps in this one, as bytes, so that nothing is shared."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Handle = Callable[[Message, Context], Message | None]


class LocalGrid(Grid):
    """Nodes by id, each with its app and its own state; one that returns None never answers."""

    def __init__(self, nodes: dict[int, tuple[Handle | ClientApp, dict[str, Any]]]) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.apps = {node: app for node, (app, _) in nodes.items()}
        self.contexts = {
            node: Context(1, node, dict(config), RecordDict(), {}) for node, (_, config) in nodes.items()
        }
        self.online = set(nodes)
        self.pushed: list[Message] = []
        self.replies: dict[str, list[Message]] = {}
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()

    def get_node_ids(self) -> Iterable[int]:
        return sorted(self.online)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            with self.lock:
                message.metadata.__dict__["_message_id"] = name = f"message-{len(self.pushed)}"
                self.pushed.append(message)
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
            reply = self._deliver(message)
            self.replies[name] = [reply] if reply else []
            names.append(name)
        return names

    def _deliver(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        received = message_from_proto(message_to_proto(message))
        try:
            reply = self.apps[node](received, self.contexts[node])
        except Exception as error:  # as Flower does
            return Message(Error(2, repr(error)), reply_to=received)
        return message_from_proto(message_to_proto(reply)) if reply else None

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = [reply for name in message_ids for reply in self.replies.pop(name, [])]
        with self.lock:
            self.in_flight -= len(found)
        return found

    def set_run(self, *_: object) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *_: object, **__: object) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *_: object, **__: object) -> Iterable[Message]:
        raise NotImplementedError
