"""Runs on a real SuperLink in which some nodes are played by hand."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp

from lidfl import Experiment, RunDirectory
from lidfl.flower.codec import read_ask
from lidfl.flower.hosting import await_port, link_arguments
from lidfl.flower.local.federation import LocalFederation
from lidfl.flower.local.processes import marked
from lidfl.flower.signing import VARIABLE
from tests.command import lines_without_times
from tests.flower.fake_node import FakeNode, fake_node


class PlainFederation(LocalFederation):
    """A federation on Flower's own SuperLink, without what ours adds: server and nodes protect themselves."""

    def start_link(self) -> None:
        self.write_connection()
        self.processes.environment |= {VARIABLE: str(self.home / "signing.key")}
        self.processes.start("superlink", "flower-superlink", *link_arguments(self.home, self.port, insecure=False))
        await_port(self.port)


@contextmanager
def three_keys(kind: type[LocalFederation], out: Path, **settings: Any) -> Iterator[LocalFederation]:
    """A SuperLink that has registered three keys, and no nodes yet."""
    usual: dict[str, Any] = dict(num_clients=3, byzantine_fraction=0, list_size=2, rounds=2, eval_every=1)
    experiment = Experiment.of(usual | dict(engine="loop", checkpoint_every=1, out=str(out)) | settings)
    with kind(experiment) as local:
        local.claim()
        local.prepare()
        local.start_link()
        local.register(*(local.home / f"node-{client}.key.pub" for client in range(3)))
        yield local
    assert not list(marked(local.processes.mark))


@contextmanager
def nodes(federation: LocalFederation, app: ClientApp) -> Iterator[tuple[FakeNode, FakeNode]]:
    """Node 0 is answered by the app; nodes 1 and 2 are returned."""
    with ExitStack() as stack:
        honest = [stack.enter_context(fake_node(federation, client)) for client in range(2)]
        by_hand = stack.enter_context(fake_node(federation, 2))
        stack.enter_context(serving(honest[0], app))
        yield honest[1], by_hand


def play(federation: LocalFederation, name: str, deadline: float = 20.0, **config: Any) -> Path:
    """Start a run in a directory of its own."""
    out = federation.logs.parent.parent / name
    federation.directory = RunDirectory(out)
    federation.submit(out=str(out), deadline=deadline, wait=60.0, **config)
    return out


def finish(out: Path, seconds: float = 600) -> list[dict[str, Any]]:
    until = monotonic() + seconds
    while not RunDirectory(out).is_finished:
        assert monotonic() < until, "the run does not end"
        sleep(0.2)
    return lines_without_times(out)


def wait_for(what: Callable[[], bool], seconds: float = 400) -> None:
    until = monotonic() + seconds
    while not what():
        assert monotonic() < until, "it does not happen"
        sleep(0.1)


def rounds_done(out: Path) -> int:
    file = out / "rounds.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def server_apps(federation: LocalFederation) -> list[int]:
    """The processes of a federation that are its server's app."""
    return [pid for pid in marked(federation.processes.mark) if b"flwr-serverapp" in command_of(pid)]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def answer_until_vote(node: FakeNode, app: ClientApp) -> Message:
    """Answer as an honest node would until the first vote, which is returned unanswered."""
    while read_ask((message := node.next_message()).content).kind != "vote":
        node.send(app(message, node.context))
    return message


@contextmanager
def serving(node: FakeNode, app: ClientApp) -> Iterator[None]:
    """Let an app answer for a node meanwhile."""
    stop = threading.Event()
    thread = threading.Thread(target=node.serve, args=(app, stop), daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()
