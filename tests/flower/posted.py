"""A SuperLink's runtime API in this process: what nodes have posted, whatever that is."""

import hashlib
from types import SimpleNamespace
from typing import Any

from flwr.app import Message
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata as ProtoMetadata
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.superlink.grid.http_grid import HttpGrid


def packed(message: Message) -> dict[str, bytes | None]:
    """The objects of a message by name, as bytes."""
    return {name: thing.deflate() for name, thing in get_all_nested_objects(message).items()}


class Runtime:
    """Replies as a node may have uploaded them: objects by name, whose bytes may be anything."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, ObjectTree]] = []
        self.objects: dict[str, bytes | None] = {}
        self.pulled: list[str] = []
        self.confirmed: list[str] = []

    def post(self, reply_to: str, message: Message, changed: dict[str, bytes | None] | None = None) -> None:
        """Announce a reply and upload its objects, some of them changed, or kept back (None)."""
        self.posts.append((reply_to, get_object_tree(message)))
        self.objects |= packed(message) | (changed or {})

    def post_raw(self, reply_to: str, contents: list[bytes]) -> None:
        """Announce a reply of which the last object is the head and the others its children."""
        names = [hashlib.sha256(content).hexdigest() for content in contents]
        children = [ObjectTree(object_id=name) for name in names[:-1]]
        self.posts.append((reply_to, ObjectTree(object_id=names[-1], children=children)))
        self.objects |= dict(zip(names, contents, strict=True))

    # What the grid calls

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:  # noqa: N802
        found = [post for post in self.posts if post[0] in request.message_ids or not post[0]]
        self.posts = [post for post in self.posts if post not in found]
        heads = [ProtoMessage(metadata=ProtoMetadata(reply_to_message_id=reply_to)) for reply_to, _ in found]
        return PullAppMessagesResponse(messages_list=heads, message_object_trees=[tree for _, tree in found])

    def PullObject(self, request: Any) -> PullObjectResponse:  # noqa: N802
        self.pulled.append(request.object_id)
        content = self.objects[request.object_id]
        return PullObjectResponse(
            object_found=True, object_available=content is not None, object_content=content or b""
        )

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        self.confirmed.append(request.message_object_id)

    def grid(self) -> HttpGrid:
        """Flower's own grid, connected to this."""
        grid = HttpGrid(insecure=True, token="none")
        grid.__dict__["_client"] = self
        grid.__dict__["_run"] = SimpleNamespace(run_id=1)
        return grid
