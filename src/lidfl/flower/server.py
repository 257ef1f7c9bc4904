"""The server's app: plays an experiment's rounds with the nodes of a federation, and writes its run directory.

The app's run config overrides the experiment's settings (`flwr run . -c "rounds=20"`), and has five more keys:

| key | meaning |
|---|---|
| `resume`, `overwrite` | as with `lidfl run`: with `resume=true` a run that was killed goes on |
| `in-flight`, `deadline` | messages out at a time, and seconds for each (see `fleet.Limits`) |
| `wait` | seconds to wait at the start until all clients have joined |
"""

import fcntl
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from time import sleep
from typing import Any, TypeAlias

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from lidfl import models
from lidfl.client import flushing_denormals
from lidfl.config import Experiment
from lidfl.errors import LidflError
from lidfl.flower.answers import Answers
from lidfl.flower.fleet import Fleet, Limits
from lidfl.flower.members import Members
from lidfl.parameters import Network
from lidfl.protocol import ModelList, Outcome
from lidfl.rundir import Line, RunDirectory
from lidfl.seeds import seed_for
from lidfl.server import Server
from lidfl.simulation import Simulated, describe, play, result, summarise
from lidfl.simulator import Simulator
from lidfl.types import Parameters

log = logging.getLogger(__name__)

GRACE = 2.0
"""Seconds that a server has to end by itself once its SuperLink is gone."""
Audit: TypeAlias = Callable[[Experiment], Simulator]
"""Where all data is at hand, as in a test, someone who knows it judges the list and names who is honest."""


@dataclass(frozen=True)
class Control:
    """How an app is run, besides its experiment."""

    resume: bool = False
    overwrite: bool = False
    in_flight: int = Limits.in_flight
    deadline: float = Limits.deadline
    wait: float = 120.0


class Deployed:
    """The nodes of a fleet as the federation of a run; what only an auditor knows, it asks the auditor."""

    def __init__(self, answers: Answers, auditor: Simulator | None) -> None:
        self.answers = answers
        self.answer = answers.answer
        self.seconds: dict[str, float] = answers.seconds
        self.auditor = auditor

    def describe(self, outcome: Outcome) -> Line:
        """The server's record, and how much went over the network so far."""
        line = describe(outcome.record, self.auditor.byzantine if self.auditor else None)
        fleet = self.answers.fleet
        traffic = {"sent": fleet.sent_bytes, "received": fleet.received_bytes}
        fleet.sent_bytes = fleet.received_bytes = 0
        refused, fleet.refused = dict(fleet.refused), type(fleet.refused)()
        return line | {"loss": {}, "bytes": traffic, "refused": refused}

    def assess(self, models: ModelList) -> Line:
        """Accuracies, if somebody can tell: what nodes say of themselves is worth nothing."""
        return Simulated(self.auditor).assess(models) if self.auditor else {}


class ListServer(ServerApp):
    """A ServerApp that can say what it plays."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__()
        self.experiment = experiment


def build(experiment: Experiment, audit: Audit | None) -> ListServer:
    """The ServerApp of an experiment."""
    app = ListServer(experiment)

    def main(grid: Grid, context: Context) -> None:
        end_with_parent(sys.argv)
        settings, control = read_run_config(experiment, context.run_config)
        run(settings, control, grid, audit)

    app.main()(main)
    return app


def end_with_parent(arguments: Sequence[str]) -> None:
    """End this process soon after the SuperLink that started it, if one did.

    Flower's own way waits for logs to be taken that nobody takes any more, so the server would stay, and hold the
    run directory. Nothing is lost: every round that is done is saved.
    """
    if "--parent-pid" not in arguments:
        return
    parent = int(arguments[arguments.index("--parent-pid") + 1])

    def watch() -> None:
        with suppress(ProcessLookupError):
            while True:
                os.kill(parent, 0)  # asks whether it is there
                sleep(1)
        sleep(GRACE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def read_run_config(experiment: Experiment, config: Mapping[str, Any]) -> tuple[Experiment, Control]:
    """The experiment and the control that a run config stands for."""
    given = {name.replace("-", "_"): value for name, value in config.items() if value != ""}
    ours = {f.name: given.pop(f.name) for f in fields(Control) if f.name in given}
    known = {f.name for f in fields(Experiment)}
    changes = {name: value for name, value in given.items() if name in known}
    return experiment.with_settings(**(changes | {"checkpoint_every": 1})), Control(**ours)


@flushing_denormals()
def run(experiment: Experiment, control: Control, grid: Grid, audit: Audit | None) -> dict[str, Any]:
    """Play all rounds that are left; the summary."""
    directory = RunDirectory(experiment.out)
    directory.check(experiment, resume=control.resume, overwrite=control.overwrite)
    directory.open(experiment, overwrite=control.overwrite)
    with directory.alone(), at_work(directory), logged(directory):
        auditor = audit(experiment) if audit else None
        if auditor:
            directory.save_task(auditor.data)
        fleet = Fleet(grid, Limits(control.in_flight, control.deadline))
        members = Members(fleet, experiment.num_clients, directory.path / "nodes.json")
        members.wait(control.wait)
        server = Server(experiment)
        federation = Deployed(Answers(experiment, fleet, members), auditor)
        start = partial(server.start, auditor.network.initial() if auditor else initial_model(experiment))
        state = play(experiment, server, federation, start, directory)
        summary = result(auditor, state.models) if auditor else {}
        summary |= summarise(experiment, state, directory)
        directory.finish(state, summary)
    return summary


def initial_model(experiment: Experiment) -> Parameters:
    """The user's own model, initialised from the seed."""
    bound = models.resolve(experiment.model)
    if bound.wants:
        raise LidflError(f"model '{experiment.model}' depends on the data; name yours, as package.task:model")
    return Network(models.build(experiment.model, (0, 0, 0), 0, seed_for(experiment.seed, "model"))).initial()


@contextmanager
def logged(directory: RunDirectory) -> Iterator[None]:
    """Write which nodes join, fail or are late to server.log."""
    handler = logging.FileHandler(directory.path / "server.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("lidfl")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


@contextmanager
def at_work(directory: RunDirectory) -> Iterator[None]:
    """A lock by which others see that this server is running: to touch the directory's own would be in its way."""
    with (directory.path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
