"""The only module that calls Grid: who is there, and one reply from each node that is asked.

- No more than `in_flight` messages are out at a time: each starts a process at its node, and Flower starts another
  one if the first has not reported in 30 s. Each has a thread here, so that a slow upload holds up nobody else.
- Each message has a deadline, and lives no longer: a node that comes back does not work on stale requests.
- Each message carries a secret that only its node is sent, and only a reply that echoes it counts. Flower checks
  who hands in a reply, but not that it is the node that was asked. It takes one reply to a message, so a node in
  whose name another has answered is asked anew; and no node's reply is counted twice.
- A reply is measured while it is fetched: what is too large is dropped, not assembled.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any

from flwr.app import Array, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.superlink.grid import http_grid

from lidfl.flower.codec import ENVELOPE, envelope, size_of

log = logging.getLogger(__name__)

OVERHEAD = 64 * 1024
"""Bytes of a reply besides its update."""
SMALLEST = 64
"""Bytes of an object, which is named by a hash."""
FORGED = "forged"
TRIES = 2
"""How often a node is asked in whose name somebody else has answered."""
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
class Tally:
    """What has gone over the network."""

    sent: int = 0
    """Bytes to the nodes."""
    received: int = 0
    """Bytes from the nodes."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Messages that brought no reply, by reason."""

    def since(self, earlier: "Tally") -> "Tally":
        """What has come since an earlier tally."""
        refused = Counter(self.refused) - Counter(earlier.refused)
        return Tally(self.sent - earlier.sent, self.received - earlier.received, dict(refused))


class Fleet:
    """The nodes of a federation, as far as the server can reach them."""

    def __init__(self, grid: Grid, limits: Limits) -> None:
        self.grid = grid
        self.limits = limits
        self.refused: Counter[str] = Counter()
        """Messages that brought no reply, by reason."""
        self.sent_bytes = self.received_bytes = 0
        self._lock = Lock()

    def tally(self) -> Tally:
        """What has gone over the network so far."""
        with self._lock:
            return Tally(self.sent_bytes, self.received_bytes, dict(self.refused))

    def nodes(self) -> list[NodeId]:
        """The nodes that count as online, in a fixed order."""
        return sorted(self.grid.get_node_ids())

    def ask(
        self, contents: Mapping[NodeId, RecordDict], kind: str, group: str, most_bytes: int
    ) -> Iterator[tuple[NodeId, RecordDict]]:
        """Each node's reply, as they come in; none from nodes that fail, lie about who they are or are late."""
        waiting: SimpleQueue[NodeId] = SimpleQueue()
        arrived: SimpleQueue[tuple[NodeId, RecordDict | BaseException | None]] = SimpleQueue()
        for node in contents:
            waiting.put(node)

        def work() -> None:
            while not waiting.empty():
                with suppress(Empty):
                    node = waiting.get_nowait()
                    try:
                        arrived.put((node, self._ask_one(node, contents[node], kind, group)))
                    except BaseException as error:  # for the thread that waits
                        arrived.put((node, error))

        with bounded(most_bytes + OVERHEAD, self.limits.deadline):
            for _ in range(min(self.limits.in_flight, len(contents))):
                # Daemons: when the SuperLink is gone they would try for ever, and the server must be able to end.
                Thread(target=work, daemon=True).start()
            for _ in contents:
                node, content = arrived.get()
                if isinstance(content, BaseException):
                    raise content
                if content is not None:
                    yield node, content

    def _ask_one(self, node: NodeId, content: RecordDict, kind: str, group: str) -> RecordDict | None:
        for _ in range(TRIES):
            try:
                return self._exchange(node, content, kind, group)
            except Refused as refusal:
                with self._lock:
                    self.refused[refusal.reason] += 1
                log.warning("node %d: %s %s", node, refusal.reason, refusal.details[:300])
                if refusal.reason != FORGED:
                    break
        return None

    def _exchange(self, node: NodeId, content: RecordDict, kind: str, group: str) -> RecordDict:
        """Send one message and wait for its reply."""
        secret, deadline = secrets.token_hex(16), self.limits.deadline
        records = RecordDict({**content, ENVELOPE: envelope(secret, deadline)})
        until = monotonic() + deadline
        message = Message(records, node, kind, ttl=deadline, group_id=group)
        message_id = next(iter(self.grid.push_messages([message])), None)
        if not message_id:
            raise Refused("not sent")
        with self._lock:
            self.sent_bytes += size_of(records)
        while monotonic() < until:
            for reply in self._pull(message_id):
                return self._opened(reply, secret)
            sleep(self.limits.poll)
        raise Refused("late", f"no answer within {deadline:.0f} s")

    def _pull(self, message_id: str) -> list[Message]:
        try:
            return list(self.grid.pull_messages([message_id]))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise Refused("garbage", str(error)) from None

    def _opened(self, message: Message, secret: str) -> RecordDict:
        """The content of a reply that comes from the node that was asked."""
        if message.has_error():
            raise Refused("failed", message.error.reason or "")
        if not secrets.compare_digest(_secret(message.content), secret.encode()):
            raise Refused(FORGED, "the reply does not carry the request's secret")
        with self._lock:
            self.received_bytes += size_of(message.content)
        return message.content


def _secret(content: RecordDict) -> bytes:
    record = content.get(ENVELOPE)
    echoed = record.get("secret") if isinstance(record, ConfigRecord) else None
    return echoed.encode() if isinstance(echoed, str) else b""


@contextmanager
def bounded(most_bytes: int, seconds: float) -> Iterator[None]:
    """Let Flower fetch no more than so many bytes of a reply, and build no array larger than that.

    A reply's objects are fetched one by one, and an array says itself which pieces it is made of: a few kilobytes
    could name one piece a million times. For an object that a node has announced and not uploaded, Flower would
    wait two hours.
    """
    pull, inflate = _bounded_pull(most_bytes, seconds), _bounded_inflate(most_bytes)
    with replaced(http_grid, "pull_objects", pull), replaced(Array, "inflate", classmethod(inflate)):
        yield


def _bounded_pull(most_bytes: int, seconds: float) -> Callable[..., dict[str, bytes]]:
    """Flower's `pull_objects`, which stops when it has fetched too much."""
    original = vars(http_grid)["pull_objects"]

    def pull_objects(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **_: Any) -> dict[str, bytes]:
        sizes: list[int] = []

        def measured(object_id: str) -> bytes:
            content = pull_object_fn(object_id)
            sizes.append(len(content))
            if sum(sizes) > most_bytes:
                raise Refused("too large")
            return content

        if len(object_ids) > most_bytes // SMALLEST:
            raise Refused("too large")
        found: dict[str, bytes] = original(object_ids, measured, max_time=seconds, backoff_cap=1)
        return found

    return pull_objects


def _bounded_inflate(most_bytes: int) -> Callable[..., Array]:
    """Flower's `Array.inflate`, which first looks how large the array would be."""
    original = vars(Array)["inflate"]

    def inflate(cls: type[Array], content: bytes, children: Any = None) -> Array:
        largest = max((len(piece.data) for piece in (children or {}).values()), default=0)
        if content.count(b",") * largest > most_bytes + largest * 8:
            raise Refused("too large")
        array: Array = original.__func__(cls, content, children)
        return array

    return inflate


@contextmanager
def replaced(owner: object, name: str, stand_in: object) -> Iterator[None]:
    """Let a name stand for something else for a while."""
    original = vars(owner)[name]
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        setattr(owner, name, original)
