"""The one place where what a node sends is opened. Whatever that raises is that reply's fault, and nobody else's.

Flower's own `pull_messages` fetches and decodes all replies of a call together: one that cannot be decoded takes
the others with it, and a node may send what it likes. Here one call asks which replies there are, and each is then
fetched and decoded by itself, a few objects at a time, so that a reply that trickles in holds up no other.

| what a node may try | what happens |
|---|---|
| bytes that are no protobuf, JSON a thousand levels deep, records of other kinds | `garbage` |
| more bytes, more objects or more arrays than a reply has | `too large`, before they are fetched |
| an array that names one piece ten thousand times | `too large`, not unfolded |
| an announced reply that is never uploaded | waits for its deadline, beside the others |
| an instruction instead of a reply | dropped unopened: Flower hands it to whoever polls |
"""

import json
from collections.abc import Sequence
from typing import Protocol

from flwr.app import Message, RecordDict
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.message_pb2 import PullObjectRequest as PullObject
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.constant import HEAD_BODY_DIVIDER
from flwr.supercore.inflatable.inflatable_object import (
    get_object_head_values_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid.http_grid import HttpGrid

OVERHEAD = 64 * 1024
"""Bytes of a reply besides its update."""
PIECE = 4 * 1024 * 1024
"""Bytes of one object of an array; Flower cuts arrays into pieces of five million bytes."""
MOST_OBJECTS = 8
"""Objects of a reply besides the pieces of its array: message, records, array."""
AT_A_TIME = 4
"""Objects of a reply that are fetched before the next reply has its turn."""


class Refused(Exception):
    """A message that brings no reply, and why."""

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = details


class Parcel(Protocol):
    """A reply that has been announced."""

    reply_to: str
    """The message that it answers, as it says itself."""

    def unpack(self, most_bytes: int) -> Message | None:
        """The reply once all of it is there, None until then, `Refused` if it cannot be used."""
        ...

    def discard(self) -> None:
        """Let it be forgotten."""
        ...


def announced(grid: Grid, message_ids: Sequence[str]) -> list[Parcel]:
    """The replies to these messages that are there, each of which is opened by itself.

    What Flower hands over besides, such as an instruction that a node has sent to the server, is left out.
    """
    asked = set(message_ids)
    if isinstance(grid, HttpGrid):
        answer = grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=message_ids))
        parcels: list[Parcel] = [
            Posted(grid, message.metadata.reply_to_message_id, tree)
            for message, tree in zip(answer.messages_list, answer.message_object_trees, strict=False)
        ]
    else:
        parcels = [Delivered(message) for message in grid.pull_messages(message_ids)]
    return [parcel for parcel in parcels if parcel.reply_to in asked]


class Delivered:
    """A reply that is here in full, as in Flower's simulation."""

    def __init__(self, message: Message) -> None:
        self.reply_to = message.metadata.reply_to_message_id
        self.message = message

    def unpack(self, most_bytes: int) -> Message | None:
        """The reply."""
        return _checked(self.message, most_bytes)

    def discard(self) -> None:
        """There is nothing to forget."""


class Posted:
    """A reply whose objects are at the SuperLink, or will be once its sender has uploaded them."""

    def __init__(self, grid: HttpGrid, reply_to: str, tree: ObjectTree) -> None:
        self.grid = grid
        self.reply_to = reply_to
        self.tree = tree
        self.missing: list[str] | None = None
        self.contents: dict[str, bytes] = {}

    def unpack(self, most_bytes: int) -> Message | None:
        """Fetch some more of the reply; decode it when nothing is missing any more."""
        try:
            if not self._fetched(most_bytes + OVERHEAD):
                return None
            self.discard()
            if unfolded(self.contents) > most_bytes + OVERHEAD:
                raise Refused("too large", "it would unfold to more")
            message = inflate_object_from_contents(self.tree.object_id, self.contents)
            return _checked(message, most_bytes)
        except Refused:
            self.discard()
            raise
        except Exception as error:  # a node may send what it likes: whatever this raises is the reply's fault
            raise Refused("garbage", f"{type(error).__name__}: {error}"[:300]) from None

    def _fetched(self, most_bytes: int) -> bool:
        """Whether all objects are here; fetches a few of those that are not."""
        if self.missing is None:
            self.missing = list(dict.fromkeys(tree.object_id for tree in iterate_object_tree(self.tree)))
            if len(self.missing) > MOST_OBJECTS + most_bytes // PIECE:
                raise Refused("too large", f"{len(self.missing)} objects")
        for name in self.missing[:AT_A_TIME]:
            request = PullObject(node=self.grid.node, run_id=self.grid.run.run_id, object_id=name)
            answer = self.grid._runtime_client.PullObject(request)
            if not answer.object_found:
                raise Refused("garbage", "an object of the reply is gone")
            if not answer.object_available:
                return False
            self.contents[name] = answer.object_content
            self.missing.remove(name)
            if sum(map(len, self.contents.values())) > most_bytes:
                raise Refused("too large")
        return not self.missing

    def discard(self) -> None:
        """Let the SuperLink forget the reply, which it would keep on disk until the run ends."""
        run, name = self.grid.run.run_id, self.tree.object_id
        request = ConfirmMessageReceivedRequest(node=self.grid.node, run_id=run, message_object_id=name)
        self.grid._runtime_client.ConfirmMessageReceived(request)


def unfolded(contents: dict[str, bytes]) -> int:
    """The bytes that the arrays among these objects unfold to: an array lists its pieces, and may repeat them."""
    kinds = {name: get_object_head_values_from_object_content(content)[0] for name, content in contents.items()}
    largest = max((len(contents[name]) for name, kind in kinds.items() if kind == "ArrayChunk"), default=0)
    arrays = [contents[name].partition(HEAD_BODY_DIVIDER)[2] for name, kind in kinds.items() if kind == "Array"]
    return largest * sum(len(json.loads(array)["arraychunk_ids"]) for array in arrays)


def _checked(message: object, most_bytes: int) -> Message:
    """A reply that has the form of one: an error, or records with no more than one array of an allowed size."""
    if not isinstance(message, Message):
        raise Refused("garbage", "not a message")
    if message.has_error():
        return message
    content = message.content
    if not isinstance(content, RecordDict):
        raise Refused("garbage", "no records")
    arrays = [array for record in content.array_records.values() for array in record.values()]
    if len(arrays) > 1 or sum(len(array.data) for array in arrays) > most_bytes + OVERHEAD:
        raise Refused("too large", f"{len(arrays)} arrays")
    return message
