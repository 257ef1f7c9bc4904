"""The only module that calls Grid: who is there, and one reply from each node that is asked.

- No more than `in_flight` messages are out at a time: each starts a process at its node, and Flower starts another
  one if the first has not reported in 30 s.
- Each message has a deadline, and lives no longer: a node that comes back does not work off stale requests.
- Each message carries a secret that only its node is sent, and only a reply that echoes it counts. Flower checks
  who hands in a reply, but not that it is the node that was asked. It takes one reply to a message, so a node in
  whose name another has answered is asked anew; and no node's reply is counted twice.
- A reply is measured while it is fetched: what is too large is dropped, not assembled.
"""

import logging
import secrets
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from flwr.app import Array, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.superlink.grid import http_grid

from lidfl.flower.codec import ENVELOPE, envelope, size_of

log = logging.getLogger(__name__)

OVERHEAD = 64 * 1024
"""Bytes of a reply besides its update."""
FORGED = "forged"
NodeId = int


class Refused(Exception):
    """A message that brings no reply, and why."""

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = details


@dataclass(frozen=True)
class Limits:
    """What a fleet is allowed."""

    in_flight: int = 8
    deadline: float = 120.0
    """Seconds for one message, from its sending to its reply."""
    poll: float = 0.2
    """Seconds between two looks for replies."""


@dataclass(frozen=True)
class Flight:
    """A message that is out."""

    node: NodeId
    secret: str
    until: float


class Fleet:
    """The nodes of a federation, as far as the server can reach them."""

    def __init__(self, grid: Grid, limits: Limits) -> None:
        self.grid = grid
        self.limits = limits
        self.refused: Counter[str] = Counter()
        """Replies that were not even read, by reason, since the start."""
        self.sent_bytes = self.received_bytes = 0

    def nodes(self) -> list[NodeId]:
        """The nodes that count as online, in a fixed order."""
        return sorted(self.grid.get_node_ids())

    def ask(
        self, contents: Mapping[NodeId, RecordDict], kind: str, group: str, most_bytes: int
    ) -> Iterator[tuple[NodeId, RecordDict]]:
        """Each node's reply, as they come in; none from nodes that fail, lie about who they are or are late."""
        waiting = deque(contents.items())
        flying: dict[str, Flight] = {}
        again: set[NodeId] = set()
        while waiting or flying:
            while waiting and len(flying) < self.limits.in_flight:
                flying |= self._push(*waiting.popleft(), kind, group)
            ended = set()
            for message_id, flight in flying.items():
                try:
                    content = self._reply(message_id, flight, most_bytes + OVERHEAD)
                except Refused as refusal:
                    self._note(flight, refusal)
                    ended.add(message_id)
                    if refusal.reason == FORGED and flight.node not in again:
                        again.add(flight.node)
                        waiting.append((flight.node, contents[flight.node]))
                    continue
                if content is not None:
                    ended.add(message_id)
                    yield flight.node, content
            flying = {name: flight for name, flight in flying.items() if name not in ended}
            if not ended:
                sleep(self.limits.poll)

    def _push(self, node: NodeId, content: RecordDict, kind: str, group: str) -> dict[str, Flight]:
        """Send one message; nothing is out if Flower does not take it."""
        secret, deadline = secrets.token_hex(16), self.limits.deadline
        flight = Flight(node, secret, monotonic() + deadline)
        records = RecordDict({**content, ENVELOPE: envelope(secret, deadline)})
        self.sent_bytes += size_of(records)
        message = Message(records, node, kind, ttl=deadline, group_id=group)
        for message_id in self.grid.push_messages([message]):
            if message_id:
                return {message_id: flight}
        self._note(flight, Refused("not sent"))
        return {}

    def _reply(self, message_id: str, flight: Flight, most_bytes: int) -> RecordDict | None:
        """What the node that was asked has answered, or None while it has not."""
        for message in self._pull(message_id, most_bytes):
            if message.has_error():
                raise Refused("failed", message.error.reason or "")
            if not secrets.compare_digest(_secret(message.content), flight.secret.encode()):
                raise Refused(FORGED, "the reply does not carry the request's secret")
            self.received_bytes += size_of(message.content)
            return message.content
        if monotonic() > flight.until:
            raise Refused("late", f"no answer within {self.limits.deadline:.0f} s")
        return None

    def _pull(self, message_id: str, most_bytes: int) -> list[Message]:
        try:
            with bounded(most_bytes):
                return list(self.grid.pull_messages([message_id]))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise Refused("garbage", str(error)) from None

    def _note(self, flight: Flight, refusal: Refused) -> None:
        self.refused[refusal.reason] += 1
        log.warning("node %d: %s %s", flight.node, refusal.reason, refusal.details[:300])


def _secret(content: RecordDict) -> bytes:
    record = content.get(ENVELOPE)
    echoed = record.get("secret") if isinstance(record, ConfigRecord) else None
    return echoed.encode() if isinstance(echoed, str) else b""


@contextmanager
def bounded(most_bytes: int) -> Iterator[None]:
    """Let Flower fetch no more than so many bytes, and build no array larger than that.

    A reply's objects are fetched one by one, and an array says itself which pieces it is made of: a few kilobytes
    could name one piece a million times.
    """
    fetch, inflate = vars(http_grid)["pull_objects"], vars(Array)["inflate"]
    fetched = 0

    def measured(pull: Any) -> Any:
        def pull_one(object_id: str) -> bytes:
            nonlocal fetched
            content: bytes = pull(object_id)
            fetched += len(content)
            if fetched > most_bytes:
                raise Refused("too large")
            return content

        return pull_one

    def pull_objects(object_ids: list[str], pull_object_fn: Any, **options: Any) -> dict[str, bytes]:
        if len(object_ids) > most_bytes // 64:  # no object is smaller than its own name
            raise Refused("too large")
        found: dict[str, bytes] = fetch(object_ids, measured(pull_object_fn), **options)
        return found

    def inflate_some(cls: type[Array], content: bytes, children: Any = None) -> Array:
        largest = max((len(piece.data) for piece in (children or {}).values()), default=0)
        if content.count(b",") * largest > most_bytes + largest * 8:
            raise Refused("too large")
        array: Array = inflate.__func__(cls, content, children)
        return array

    with replaced(http_grid, "pull_objects", pull_objects), replaced(Array, "inflate", classmethod(inflate_some)):
        yield


@contextmanager
def replaced(owner: object, name: str, stand_in: object) -> Iterator[None]:
    """Let a name stand for something else for a while."""
    original = vars(owner)[name]
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        setattr(owner, name, original)
