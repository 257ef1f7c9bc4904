"""A node: Flower's own SuperNode, which drops what its server has not signed and asks for work when some is likely.

A forged message is told from its head: nothing of it is fetched and no process is started. Flower asks for work
every 3 s; here a node asks soon after it has had some, and then less and less often, since each question costs the
SuperLink 8 ms of a processor.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from types import SimpleNamespace
from typing import Any

from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode

from lidfl.flower.signing import Unsigned, Verifier

log = logging.getLogger("flwr")

FLOWERS_PAUSE = 3
"""Seconds for which Flower's SuperNode sleeps when there is no work."""
REPLY_PAUSE = 0.1
"""Seconds between two looks whether the client app has answered, which cost nobody else anything."""
GROWTH = 1.5
"""By what factor the pause grows each time there is no work."""
TELL = 100
"""Of so many forged messages one is told in the log."""


class Pace:
    """How often a node asks for work: soon after it had some, less and less often while there is none."""

    def __init__(self, quickest: float, idle: float) -> None:
        self.quickest = quickest
        self.idle = max(idle, quickest)
        self.pause = quickest

    def had_work(self) -> None:
        """Begin anew."""
        self.pause = self.quickest

    def sleep(self, seconds: float) -> None:
        """What Flower's SuperNode calls to sleep."""
        if seconds < FLOWERS_PAUSE:
            sleep(min(seconds, REPLY_PAUSE))
            return
        sleep(self.pause)
        self.pause = min(self.pause * GROWTH, self.idle)


class Guard:
    """Lets a node see only what its server has signed for it."""

    def __init__(self, receive: Callable[[], Any], verifier: Verifier | None, node: int, pace: Pace) -> None:
        self.original = receive
        self.verifier = verifier
        self.node = node
        self.pace = pace
        self.dropped = 0

    def receive(self) -> Any:
        """The next message that the server has signed, with the tree of its objects; None if there is none."""
        while (received := self.original()) is not None:
            message, tree = received
            try:
                self._check(message, tree)
            except Unsigned as reason:
                self._tell(reason)
                continue
            self.pace.had_work()
            return received
        return None

    def _check(self, message: Any, tree: Any) -> None:
        if self.verifier is not None:
            # A message has one child, its content, which is named by the hash over all that it holds.
            digest = tree.children[0].object_id if len(tree.children) == 1 else ""
            self.verifier.check(message.metadata, digest, self.node)

    def _tell(self, reason: Unsigned) -> None:
        if self.dropped % TELL == 0:
            log.warning("dropped a message: %s (%d before it)", reason, self.dropped)
        self.dropped += 1


def run_supernode(arguments: list[str], verifier: Verifier | None, pace: Pace) -> None:
    """Be a SuperNode with these arguments until ended."""
    inner: Any = start_client_internal
    connect = inner.http_request_response

    @contextmanager
    def guarded(*words: Any, **named: Any) -> Iterator[tuple[Any, ...]]:
        with connect(*words, **named) as (node, receive, *others):
            yield node, Guard(receive, verifier, node, pace).receive, *others

    inner.http_request_response = guarded
    inner.time = SimpleNamespace(sleep=pace.sleep)
    sys.argv = ["flower-supernode", *arguments]
    flower_supernode()
