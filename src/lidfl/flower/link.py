"""Flower's own SuperLink, which takes from a node only what is that node's to send.

Flower 1.41 checks the key of whoever calls, and little of what the call says. What is closed here:

| what a registered node could do | what happens now |
|---|---|
| push an instruction for another node, or for the server | refused: a node sends replies, and in its own name |
| answer for another node | refused: a reply is from the node whose key hands it in |
| announce ten thousand objects, or upload 400 MB | refused: a reply is no larger than what the server sent |
| send a request of 100 MB | refused before it is read |
| reach the control API, which has no password, from outside | refused: it answers on this machine only |

And it looks for dead tasks once a second, not in every call: each look is two writes to its database, for which all
other calls wait.

Nodes also protect themselves (`signing`), and the server opens nothing unguarded (`opening`), for those who run a
plain `flower-superlink`. A proxy still belongs in front: this is one Python process.
"""

import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any, TypeAlias

from fastapi import HTTPException
from flwr.supercore.corestate.sql_corestate import SqlCoreState
from flwr.superlink import main as superlink_main
from flwr.superlink.cli.flower_superlink import flower_superlink
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers

from lidfl.flower.opening import MOST_OBJECTS, OVERHEAD, PIECE

SERVER = 1
"""The id under which Flower knows the server."""
LARGEST_REQUEST = 8 * 1024 * 1024
"""Bytes of a request from a node: Flower cuts arrays into pieces of five million."""
REMEMBERED = 10_000
"""So many uploads are remembered at a time."""
BETWEEN_LOOKS = 1.0
"""Seconds between two looks for tasks whose process is gone; Flower gives a task 60 s to report."""
FLEET, PRIVATE = "/v1/fleet/", ("/v1/control/", "/v1/runtime/", "/docs", "/openapi.json")
HERE = {"127.0.0.1", "::1"}

Scope: TypeAlias = MutableMapping[str, Any]
Application: TypeAlias = Callable[[Scope, Any, Any], Awaitable[None]]


class Uploads:
    """How many bytes each upload has brought so far, and how many the server's largest message had."""

    def __init__(self) -> None:
        self.largest = 0
        self.bytes: OrderedDict[str, int] = OrderedDict()

    def add(self, session: str, size: int) -> int:
        """Count a piece of an upload; what it has by now."""
        self.bytes[session] = self.bytes.pop(session, 0) + size
        if len(self.bytes) > REMEMBERED:
            self.bytes.popitem(last=False)
        return self.bytes[session]

    @property
    def allowed(self) -> int:
        """How large a reply may be: as large as what the server has sent, and some kilobytes."""
        return self.largest + OVERHEAD


class Guard:
    """Flower's handlers, with a look at what a node sends before they see it."""

    def __init__(self) -> None:
        self.nodes, self.server = Uploads(), Uploads()
        self._push_messages = fleet_handlers.push_messages
        self._push_object = fleet_handlers.push_object
        self._server_push_object = runtime_handlers.push_object

    def install(self) -> None:
        """Take the place of Flower's handlers."""
        fleet_handlers.push_messages = self.push_messages
        fleet_handlers.push_object = self.push_object
        runtime_handlers.push_object = self.server_push_object

    def push_messages(self, request: Any, state: Any) -> Any:
        """A node announces a reply."""
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise HTTPException(400, "one reply at a time")
        (message,), (tree,) = request.messages_list, request.message_object_trees
        head = message.metadata
        if head.src_node_id != request.node.node_id:
            raise HTTPException(400, "a node answers in its own name")
        if not head.reply_to_message_id or head.dst_node_id != SERVER:
            raise HTTPException(400, "a node sends replies to the server, and nothing else")
        most = MOST_OBJECTS + self.server.allowed // PIECE
        if message.content.ByteSize() or head.message_id != tree.object_id or not within(tree, most):
            raise HTTPException(413, "this is not what a reply looks like")
        return self._push_messages(request=request, state=state)

    def push_object(self, request: Any, state: Any) -> Any:
        """A node uploads a piece of a reply."""
        session = f"{request.node.node_id} {request.session_id}"
        if self.nodes.add(session, len(request.object_content)) > self.server.allowed:
            raise HTTPException(413, "a reply is no larger than what the server sent")
        return self._push_object(request=request, state=state)

    def server_push_object(self, request: Any, state: Any, task: Any) -> Any:
        """The server uploads a piece of a request."""
        size = self.server.add(request.session_id, len(request.object_content))
        self.server.largest = max(self.server.largest, size)
        return self._server_push_object(request, state, task)


def within(tree: Any, most: int) -> bool:
    """Whether a tree has no more than so many objects; stops counting there."""
    waiting, seen = [tree], 0
    while waiting and seen <= most:
        seen += 1
        waiting.extend(waiting.pop().children)
    return seen <= most


def seldom(work: Callable[[Any], None], seconds: float) -> Callable[[Any], None]:
    """The same work, done only if it was not done in the last so many seconds."""
    due = 0.0

    def now_and_then(state: Any) -> None:
        nonlocal due
        if monotonic() >= due:
            due = monotonic() + seconds
            work(state)

    return now_and_then


class Gate:
    """Keeps from the application what is too large, and what is not for whoever asks."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Let a request in, or not."""
        if scope["type"] == "http" and (status := verdict(scope)):
            await send({"type": "http.response.start", "status": status, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await self.application(scope, receive, send)


def verdict(scope: Scope) -> int:
    """The HTTP status with which a request is refused; 0 if it is let in."""
    headers = dict(scope["headers"])
    if scope["path"].startswith(FLEET):
        length = headers.get(b"content-length", b"")
        return 0 if length.isdigit() and int(length) <= LARGEST_REQUEST else 413
    here = (scope.get("client") or ("", 0))[0] in HERE
    return 403 if scope["path"].startswith(PRIVATE) and not here else 0


def run_superlink(arguments: list[str]) -> None:
    """Be a SuperLink with these arguments until ended."""
    Guard().install()
    look = "_cleanup_expired_task_tokens"
    setattr(SqlCoreState, look, seldom(getattr(SqlCoreState, look), BETWEEN_LOOKS))
    create = superlink_main.create_app

    def gated(*words: Any, **named: Any) -> Any:
        app = create(*words, **named)
        app.add_middleware(Gate)
        return app

    superlink_main.create_app = gated
    sys.argv = ["flower-superlink", *arguments]
    flower_superlink()
