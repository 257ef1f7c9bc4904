"""A node: Flower's own SuperNode, which drops what its server has not signed and asks for work when some is likely.

A forged message is told from its head: nothing of it is fetched and no process is started. Flower asks for work
every 3 s; here a node asks soon after it has had some, and then less and less often, since each question costs the
SuperLink 8 ms of a processor.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, TypeVar

from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode

from lidfl.flower.signing import Unsigned, Verifier

log = logging.getLogger("flwr")
T = TypeVar("T")

FLOWERS_PAUSE = 3
"""Seconds for which Flower's SuperNode sleeps when there is no work."""
REPLY_PAUSE = 0.1
"""Seconds between two looks whether the client app has answered, which cost nobody else anything."""
GROWTH = 1.5
"""By what factor the pause grows each time there is no work."""
REGULAR = 10.0
"""Seconds between two requests up to which a third is expected after about as long."""
LEEWAY = 1.5
"""How much longer than the last time a node may be asked, and still be asked regularly."""
AGAIN = 10
"""Seconds before a node that was not let in tries again."""
QUICK_LOOKS = 50
"""So often it is looked for the task of a message that has come."""
SLOW_LOOK = 10.0
"""Seconds between two looks without a message."""
TELL = 100
"""Of so many forged messages one is told in the log."""


class Pace:
    """How often a node asks for work: often while work comes regularly, less and less often while there is none.

    Who was asked some seconds ago is likely to be asked again after about as long: until then pauses do not grow.
    Where it takes longer than `REGULAR`, nothing is expected, and they grow at once: a thousand nodes must not all
    ask often.
    """

    def __init__(self, quickest: float, idle: float) -> None:
        self.quickest = quickest
        self.idle = max(idle, quickest)
        self.pause = quickest
        self.last_work = monotonic()
        self.expected_within = 0.0

    def had_work(self) -> None:
        """Begin anew."""
        now = monotonic()
        took = now - self.last_work
        self.expected_within = LEEWAY * took if took <= REGULAR else 0.0
        self.last_work = now
        self.pause = self.quickest

    def sleep(self, seconds: float) -> None:
        """What Flower's SuperNode calls to sleep."""
        if seconds < FLOWERS_PAUSE:
            sleep(min(seconds, REPLY_PAUSE))
            return
        sleep(self.pause)
        if monotonic() - self.last_work > self.expected_within:
            self.pause = min(self.pause * GROWTH, self.idle)


class Guard:
    """Lets a node see only what its server has signed for it."""

    def __init__(
        self,
        receive: Callable[[], Any],
        verifier: Verifier | None,
        node: int,
        pace: Pace,
        come: threading.Event,
    ) -> None:
        self.original = receive
        self.verifier = verifier
        self.node = node
        self.pace = pace
        self.come = come
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
            self.come.set()
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


class Starter:
    """Starts a client app when there is a message: what Flower's SuperExec does by asking five times a second.

    SuperExec is a process of 93 MB beside every SuperNode; this is a thread of it that knows when a message comes.
    """

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.come = threading.Event()
        self.children: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        """Start client apps until the process ends."""
        client = RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=True,
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec")],
            retry_invoker=make_simple_http_retry_invoker(),
        )
        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        while True:
            # Now and then without a message too: a client app that did not report in time is started again.
            looks = QUICK_LOOKS if self.come.wait(timeout=SLOW_LOOK) else 1
            self.come.clear()
            for _ in range(looks):
                found = client.AcquireTask(request)
                if found.HasField("task") and found.token:
                    self._start(found.token)
                    break
                sleep(REPLY_PAUSE)

    def _start(self, token: str) -> None:
        words = ["flwr-clientapp", "--runtime-api-address", self.address, "--token", token, "--insecure"]
        self.children = [child for child in self.children if child.poll() is None]
        self.children.append(subprocess.Popen([*words, "--parent-pid", str(os.getpid())]))


class NotLetIn(Exception):
    """Why the SuperLink does not take a node."""


def refuse(_code: int, message: str = "", *_: Any, **__: Any) -> None:
    """What is called instead of Flower's way to end a node that is not let in."""
    raise NotLetIn(message)


def let_in(connect: Callable[[], T]) -> T:
    """Try until the SuperLink takes the node: its key may be registered later, or still count as online."""
    while True:
        try:
            return connect()
        except NotLetIn as reason:
            told = " ".join(str(reason).split())
            log.warning("not let in: %s Is the key on the server's roll? Trying again in %d s.", told, AGAIN)
            sleep(AGAIN)


def run_supernode(arguments: list[str], port: int, verifier: Verifier | None, pace: Pace) -> None:
    """Be a SuperNode with these arguments until ended; its own processes reach it at a port of this machine."""
    inner: Any = start_client_internal
    connect = inner.http_request_response
    starter = Starter(port)
    threading.Thread(target=starter.run, daemon=True).start()

    @contextmanager
    def guarded(*words: Any, **named: Any) -> Iterator[tuple[Any, ...]]:
        with ExitStack() as stack:
            node, receive, *others = let_in(lambda: stack.enter_context(connect(*words, **named)))
            yield node, Guard(receive, verifier, node, pace, starter.come).receive, *others

    fleet_connection: Any = fleet_http_connection
    fleet_connection.flwr_exit = refuse
    inner.http_request_response = guarded
    inner.time = SimpleNamespace(sleep=pace.sleep)
    sys.argv = ["flower-supernode", "--isolation", "process", "--port", str(port), *arguments]
    flower_supernode()
