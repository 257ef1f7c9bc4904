"""A client's app: trains the model it likes best of those it is offered, and ranks those it is shown.

Flower starts a process for every message, so nothing is imported before it is needed. What is worth keeping, that
is models by hash and their losses, is in the context's state. That is a cache: it may be gone at any time, and then
the client says which models it is missing.
"""

import math
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
from lidfl.flower.signing import verifier_of
from lidfl.flower.store import keep_own

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lidfl.flower.worker import Worker

    Split: TypeAlias = tuple[Tensor, Tensor]
    """Images, or what else the model takes, and labels."""

MODELS, LOSSES, OBEYED = "lidfl.models", "lidfl.losses", "lidfl.obeyed"
"""Records of the context's state: models, their losses, and which requests have been obeyed."""
MISBEHAVIOUR = frozenset({"attack", "vote-attack"})
"""Keys of a node's config that a test sets."""
GRACE = 5.0
"""Seconds that a client has to end by itself once its time is up."""


@runtime_checkable
class Task(Protocol):
    """What the user brings; a module with these functions will do.

    Two more functions are optional. `loss(module, inputs, labels)` is what training makes small and by which a
    client judges a model on its validation data; without it that is the mean cross-entropy. `optimizer(parameters,
    learning_rate, momentum)` returns what takes the steps; without it that is SGD.
    """

    def model(self) -> "nn.Module":
        """The model, as the server also builds it."""
        ...

    def data(self, partition: int, partitions: int) -> "tuple[Split, Split]":
        """The node's training data and validation data."""
        ...


class ListClient(ClientApp):
    """A ClientApp that can say what it trains, and whether its nodes misbehave when their config says so."""

    def __init__(self, task: Task, *, testing: bool) -> None:
        super().__init__()
        self.task = task
        self.testing = testing


def make_client_app(task: Any, *, testing: bool) -> ListClient:
    """The ClientApp of a task."""
    if not isinstance(task, Task):
        raise LidflError("a task needs the functions model() and data(partition, partitions)")
    app = ListClient(task, testing=testing)

    def handle(message: Message, context: Context) -> Message:
        obey(message, context)  # before anything else: what is not the server's must cost next to nothing
        seconds = time_limit(message)
        with deadline(seconds):
            reply = answer(read_ask(message.content), context, task, testing=testing, seconds=seconds)
        return reply_with(pack_reply(reply), message)

    app.query()(handle)
    app.train()(handle)
    app.evaluate()(handle)
    return app


def obey(message: Message, context: Context) -> None:
    """Raise unless the server has signed a message, if the node's config has the server's key."""
    verifier = verifier_of(context.node_config)
    if verifier is None:
        return
    record = context.state.get(OBEYED)
    if isinstance(record, ConfigRecord):
        verifier.recall(record)
    verifier.check(message.metadata, message.content.object_id, context.node_id)
    context.state[OBEYED] = ConfigRecord(verifier.memory())


def answer(ask: Ask, context: Context, task: Any, *, testing: bool, seconds: float = math.inf) -> Reply:
    """The reply to a request that has so many seconds."""
    node = dict(context.node_config)
    if ask.kind == "hello":
        return Reply("hello", partition=int(node.get("partition-id", 0)))
    cache = Cache(context)
    vectors = cache.vectors | dict(ask.vectors)
    missing = tuple(name for name in dict.fromkeys(ask.models) if not cache.suffices(name, ask, vectors))
    if missing:
        return Reply("missing", missing=missing)
    worker = worker_for(task, ask, node, testing=testing)
    losses = dict(cache.losses)
    if ask.kind != "train" or len(ask.models) > 1:
        unknown = [name for name in dict.fromkeys(ask.models) if name not in losses]
        losses |= {name: worker.loss(vectors[name]) for name in unknown}
    cache.keep(ask, vectors, losses)
    if ask.kind == "vote":
        keep_own(worker, ask, vectors, losses, context.run_id, seconds)
    if ask.kind == "train":
        parent = min(range(len(ask.models)), key=lambda place: losses.get(ask.models[place], 0.0))
        return Reply("trained", parent=parent, update=worker.train(vectors[ask.models[parent]]))
    return Reply("ballot", ballot=worker.ballot([losses[name] for name in ask.models]))


def worker_for(task: Any, ask: Ask, node: Mapping[str, Any], *, testing: bool) -> "Worker":
    """Who does the work of a message; in a test, the node's config may want it done wrong."""
    if not node.keys() & MISBEHAVIOUR:
        from lidfl.flower.worker import Worker  # torch, at last

        return Worker(task, ask, node)
    if not testing:
        raise LidflError("a node's config names an attack; only client_app(task, testing=True) takes it")
    from lidfl.flower.misbehaving import Liar

    return Liar(task, ask, node)


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
        """Whether enough of a model is at hand: its numbers, or, if it is only to be judged, its loss."""
        return name in vectors or (ask.kind != "train" and name in self.losses)

    def keep(self, ask: Ask, vectors: Mapping[str, Vector], losses: Mapping[str, float]) -> None:
        """Remember the models of the list, which a vote names; what jurors are shown is not in the list."""
        known = self.vectors if ask.kind == "choose" else vectors
        if ask.kind == "vote":
            known = {name: known[name] for name in ask.models if name in known}
            losses = {name: losses[name] for name in ask.models}
        self.state[MODELS] = pack_vectors(known)
        self.state[LOSSES] = ConfigRecord(dict(losses))


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End what takes longer, by an exception, which Flower reports, and by force if that does not help.

    A client app that hangs would block its node for good. In Flower's simulation, clients are threads of a process
    that others use too; there, nothing is ended.
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
