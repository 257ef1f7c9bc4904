"""A node's own model, in a file of the node: after every vote, what the run's rule makes of the candidates.

A node is shown all candidates when it votes, so nothing has to be fetched or copied at the end. The rule is the one
that the server names (`deploy`), the same function as in a simulation (`lidfl.methods.deploying`). What a rule
trains for itself takes long, so that is done after the last vote only; before, it goes by what the list holds. What
is best by a node's own validation data need not be in the next list; it is still what that node would choose.

A reply must not wait for it. In a nursery (`lidfl node`) it is done when the reply is out, for as long as it takes.
Elsewhere the process ends with the reply, so it is done before, and training stops in time for the reply.

What is written is a state dict; its metadata names the run, the round, the rule, the loss of the model and that of
every candidate.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from lidfl.flower.codec import Ask, Vector, content_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lidfl.flower.worker import Worker
    from lidfl.types import Models, Parameters

VARIABLE = "LIDFL_NODE_MODEL"
"""The environment variable that names the file; `lidfl node` sets it."""
NOTES = "lidfl"
"""The key of the file's metadata."""
SHARE = 0.5
"""The part of a request's time that may go into a node's own model before the reply is out."""


class Afterwards:
    """Work to do when a reply is out, where somebody will see to it; else it is done at once."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] | None = None
        """None if nobody comes back to it."""

    def put(self, work: Callable[[float], None], seconds: float) -> None:
        """Do it later, with all the time in the world, or now, within so many seconds."""
        if self.waiting is None:
            work(seconds)
        else:
            self.waiting.append(lambda: work(math.inf))

    def do(self) -> None:
        """Do what is waiting."""
        while self.waiting:
            self.waiting.pop(0)()


AFTERWARDS = Afterwards()


def keep_own(
    worker: "Worker", ask: Ask, vectors: Mapping[str, Vector], losses: Mapping[str, float], run: int, seconds: float
) -> None:
    """Write what this node makes of the candidates that are at hand, if it wants a file."""
    path = os.environ.get(VARIABLE)
    known = {name: vectors[name] for name in ask.models if name in vectors and math.isfinite(losses[name])}
    if path and known:
        job = Keeping(worker, ask, known, dict(losses), run, Path(path))
        AFTERWARDS.put(job.do, SHARE * seconds)


@dataclass(frozen=True)
class Keeping:
    """One vote's candidates, of which a node makes its model."""

    worker: "Worker"
    ask: Ask
    vectors: Mapping[str, Vector]
    losses: dict[str, float]
    run: int
    path: Path

    def do(self, seconds: float) -> None:
        """Choose, and write: at once what the list gives, and after the last vote what training makes of it."""
        work, number = self.ask.work, self.ask.round_index + 1
        quick = OwnWithin(self.worker, self.losses, until=0.0)
        self._write(quick, rounds=0)
        if number == work.rounds and not quick.trained_all:
            self._write(OwnWithin(self.worker, self.losses, monotonic() + seconds), work.rounds)

    def _write(self, own: "OwnWithin", rounds: int) -> None:
        """Write what the rule makes of the candidates, unless the file has a later choice already."""
        import torch
        from safetensors.torch import save

        from lidfl.files import write_atomically
        from lidfl.methods.deploying import deploy

        work, number = self.ask.work, self.ask.round_index + 1
        rows = torch.stack([torch.from_numpy(vector) for vector in self.vectors.values()])
        chosen = deploy.resolve(work.deploy)(rows, own, rounds=rounds)
        told = {"run": self.run, "round": number, "rule": work.deploy, "whole": own.trained_all}
        told |= {"loss": float(own.losses(chosen[None])[0]), "losses": [self.losses[name] for name in self.vectors]}
        if self._is_latest(number):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = save(self.worker.network.state_dict(chosen), {NOTES: json.dumps(told)})
            write_atomically(self.path, content)

    def _is_latest(self, number: int) -> bool:
        """Whether the file has nothing of a later round of this run."""
        notes = notes_of(self.path)
        return notes.get("run") != self.run or int(notes.get("round", 0)) <= number


class OwnWithin:
    """What a node can do with its own data within a time; what was judged before is not judged again."""

    def __init__(self, worker: "Worker", known: dict[str, float], until: float) -> None:
        self.worker = worker
        self.known = known
        self.until = until
        self.trained_all = True
        """Whether there was time for all training that the rule wanted."""

    def losses(self, models: "Models") -> "NDArray[np.float64]":
        """Its judgement of each model."""
        import numpy as np

        vectors = [row.numpy() for row in models]
        names = [content_hash(vector) for vector in vectors]
        for name, vector in zip(names, vectors, strict=True):
            if name not in self.known:
                self.known[name] = self.worker.loss(vector)
        return np.array([self.known[name] for name in names])

    def values(self, models: "Models") -> "NDArray[np.float64]":
        """The same image by image."""
        return self.worker.values(models)

    def alone(self, rounds: int) -> "Parameters":
        """What it would have without the others, as far as there is time for it."""
        from lidfl.methods.deploying import trained_alone

        return trained_alone(self, rounds)

    def trained(self, model: "Parameters", part: int) -> "Parameters":
        """A model after one more local training; the model itself if there is no time for it."""
        if monotonic() > self.until:
            self.trained_all = False
            return model
        return self.worker.trained(model, part)

    def first(self) -> "Parameters":
        """The model that everything began with."""
        return self.worker.first()


def notes_of(path: Path) -> dict[str, Any]:
    """What the file of a node's own model says of it; nothing if there is none."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            found: dict[str, Any] = json.loads((file.metadata() or {}).get(NOTES, "{}"))
            return found
    except (SafetensorError, ValueError):
        return {}
