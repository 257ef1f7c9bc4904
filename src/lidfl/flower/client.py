"""A client's app: trains the model it likes best of those it is offered, and ranks those it is shown.

Flower starts a process for every message, so nothing is imported before it is needed, and what is worth keeping
(models by hash, and their losses) lies in the context's state. That is a cache: it may be gone at any time, and
then the client says which models it is missing.
"""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from lidfl.errors import LidflError
from lidfl.flower.codec import (
    Ask,
    Reply,
    Vector,
    from_array,
    pack_reply,
    pack_vectors,
    read_ask,
    reply_with,
    time_limit,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    Split: TypeAlias = tuple[Tensor, Tensor]
    """Images, or what else the model takes, and labels."""

MODELS, LOSSES = "lidfl.models", "lidfl.losses"
"""Records of the context's state."""
GRACE = 5.0
"""Seconds that a client has to end by itself once its time is up."""


@runtime_checkable
class Task(Protocol):
    """What the user brings; a module with these functions will do.

    A third one is optional: `loss(module, images, labels) -> float`, by which a client judges a model on its
    validation data. Without it, that is the mean cross-entropy.
    """

    def model(self) -> "nn.Module":
        """The model, as the server also builds it."""
        ...

    def data(self, partition: int, partitions: int) -> "tuple[Split, Split]":
        """The node's training data and validation data."""
        ...


class ListClient(ClientApp):
    """A ClientApp that can say what it trains, and whether its nodes attack when their config says so."""

    def __init__(self, task: Task, *, testing: bool) -> None:
        super().__init__()
        self.task = task
        self.testing = testing


def build(task: Any, *, testing: bool) -> ListClient:
    """The ClientApp of a task."""
    if not isinstance(task, Task):
        raise LidflError("a task needs the functions model() and data(partition, partitions)")
    app = ListClient(task, testing=testing)

    def handle(message: Message, context: Context) -> Message:
        with deadline(time_limit(message)):
            reply = answer(read_ask(message.content), context, task, testing=testing)
        return reply_with(pack_reply(reply), message)

    app.query()(handle)
    app.train()(handle)
    app.evaluate()(handle)
    return app


def answer(ask: Ask, context: Context, task: Any, *, testing: bool) -> Reply:
    """The reply to a request."""
    node = dict(context.node_config)
    if ask.kind == "hello":
        return Reply("hello", parent=int(node.get("partition-id", 0)))
    cache = Cache(context)
    vectors = cache.vectors | dict(ask.vectors)
    missing = tuple(name for name in dict.fromkeys(ask.models) if not cache.suffices(name, ask, vectors))
    if missing:
        return Reply("missing", missing=missing)
    from lidfl.flower.worker import Worker  # torch, at last

    worker = Worker(task, ask, node, testing=testing)
    losses = dict(cache.losses)
    if ask.kind != "train" or len(ask.models) > 1:
        unknown = [name for name in dict.fromkeys(ask.models) if name not in losses]
        losses |= {name: worker.loss(vectors[name]) for name in unknown}
    cache.keep(ask, vectors, losses)
    if ask.kind == "train":
        parent = min(range(len(ask.models)), key=lambda place: losses.get(ask.models[place], 0.0))
        return Reply("trained", parent=parent, update=worker.train(vectors[ask.models[parent]]))
    return Reply("ballot", ballot=worker.ballot([losses[name] for name in ask.models]))


class Cache:
    """What a client remembers of models, by their hashes."""

    def __init__(self, context: Context) -> None:
        self.state = context.state
        arrays, losses = self.state.get(MODELS), self.state.get(LOSSES)
        self.vectors: dict[str, Vector] = {}
        self.losses: dict[str, float] = {}
        if isinstance(arrays, ArrayRecord) and isinstance(losses, ConfigRecord):
            self.vectors = {name: from_array(array, len(array.data)) for name, array in arrays.items()}
            self.losses = {name: float(str(loss)) for name, loss in losses.items()}

    def suffices(self, name: str, ask: Ask, vectors: Mapping[str, Vector]) -> bool:
        """Whether enough of a model is at hand: to judge it again, its loss will do."""
        return name in vectors or (ask.kind != "train" and name in self.losses)

    def keep(self, ask: Ask, vectors: Mapping[str, Vector], losses: Mapping[str, float]) -> None:
        """Remember the list; what jurors are shown is not in it, and a vote says which models are left."""
        known = self.vectors if ask.kind == "choose" else vectors
        if ask.kind == "vote":
            known = {name: known[name] for name in ask.models if name in known}
            losses = {name: losses[name] for name in ask.models}
        self.state[MODELS] = pack_vectors(known)
        self.state[LOSSES] = ConfigRecord(dict(losses))


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End what takes longer: by an exception, which Flower reports, and by force if that is not heeded.

    A client app that hangs would block its node for good. Only a process of its own can be treated so; in Flower's
    simulation, clients run in threads of others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(*_: object) -> None:
        raise TimeoutError(f"not done in {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, expire)
    force = threading.Timer(seconds + GRACE, os._exit, [1])
    force.daemon = True
    force.start()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        force.cancel()
        signal.signal(signal.SIGALRM, before)
