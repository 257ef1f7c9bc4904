"""The server's app: plays an experiment's rounds with the nodes of a federation, and writes its run directory.

The app's run config overrides the experiment's settings (`flwr run . -c "rounds=20"`), and has more keys:

| key | meaning |
|---|---|
| `resume`, `overwrite` | as with `lidfl run`: with `resume=true` a run that was killed goes on |
| `in-flight`, `deadline` | messages out at a time, more while replies are quick (see `window`); seconds for each |
| `patience` | seconds that an honest node needs (see `lidfl.flower.patience`) |
| `wait` | seconds to wait at the start until all clients have joined |
| `open-roll` | nodes may join and leave while it runs; `num-clients` is how many are planned with |
| `vouched` | how many nodes are honest at least, whoever joins; 0 for the experiment's fraction of the roll |
| `log-format` | `json` for a line of JSON instead of text |
| `live` | the port of the live page on this machine; 0 for none |
"""

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from lidfl.errors import LidflError
from lidfl.flower.answers import Answers
from lidfl.flower.complaints import Complaints
from lidfl.flower.deployed import Deployed, OpenAudit
from lidfl.flower.fleet import Fleet, Limits
from lidfl.flower.joining import OpenMembers, OpenServer
from lidfl.flower.members import Members
from lidfl.flower.nodes_view import view_nodes
from lidfl.flower.patience import share_of
from lidfl.flower.presence import at_work
from lidfl.flower.roll import Registered, Seating
from lidfl.flower.signing import Signer
from lidfl.learning import models
from lidfl.learning.client import flushing_denormals
from lidfl.learning.parameters import Network
from lidfl.live.serving import served
from lidfl.live.watch import Nodes, Watch
from lidfl.protocol import Canonical
from lidfl.runs.directory import RunDirectory, Summary
from lidfl.runs.loop import Observer, Progress, play
from lidfl.runs.server import Server, first_list
from lidfl.runs.summary import summarise
from lidfl.runs.telling import log_line
from lidfl.seeds import seed_for
from lidfl.settings.experiment import FORMERLY, Experiment
from lidfl.settings.headline import headline
from lidfl.settings.world import canonical_form
from lidfl.types import Parameters

log = logging.getLogger(__name__)

STOPPED = "stopped: "
"""How the line of server.log begins that says why a run was stopped."""
GRACE = 2.0
"""Seconds that a server has to end by itself once its SuperLink is gone."""


@dataclass(frozen=True)
class Control:
    """How an app is run, besides its experiment."""

    resume: bool = False
    overwrite: bool = False
    in_flight: int = Limits.in_flight
    deadline: float = Limits.deadline
    patience: float = Limits.patience
    wait: float = 120.0
    open_roll: bool = False
    vouched: int = 0
    log_format: str = "text"
    live: int = 0


class ListServer(ServerApp):
    """A ServerApp that can say what it plays."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__()
        self.experiment = experiment


def make_server_app(experiment: Experiment, open_audit: OpenAudit | None) -> ListServer:
    """The ServerApp of an experiment."""
    app = ListServer(experiment)

    def main(grid: Grid, context: Context) -> None:
        end_with_parent(sys.argv)
        settings, control = read_run_config(experiment, context.run_config)
        serve(settings, control, grid, open_audit)

    app.main()(main)
    return app


def end_with_parent(arguments: Sequence[str]) -> None:
    """End this process soon after the SuperLink that started it, if one did.

    Flower would wait for somebody to fetch the logs, and nobody does any more: the server would stay and hold its
    run directory. Nothing is lost, since every round that is done is saved.
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
    """The experiment and the control that a run config stands for; what is neither may be the app's own."""
    given = {name.replace("-", "_"): value for name, value in config.items() if value != ""}
    control = {f.name: given.pop(f.name) for f in fields(Control) if f.name in given}
    known = {f.name for f in fields(Experiment)} | FORMERLY.keys()
    changes = {name: value for name, value in given.items() if name in known}
    return experiment.with_settings(**(changes | {"checkpoint_every": 1})), Control(**control)


@flushing_denormals()
def serve(experiment: Experiment, control: Control, grid: Grid, open_audit: OpenAudit | None) -> Summary:
    """Play all rounds that are left; the summary."""
    check_what_nodes_can(experiment, control)
    directory = RunDirectory(experiment.out)
    claimed = directory.claimed(experiment, resume=control.resume, overwrite=control.overwrite)
    with claimed, at_work(directory), logged(directory, control.log_format):
        audit = open_audit(experiment) if open_audit else None
        if audit:
            directory.save_inputs(audit.data)
        initial = audit.initial() if audit else initial_model(experiment)
        limits = Limits(control.in_flight, control.deadline, patience=control.patience, share=share_of(experiment))
        fleet = Fleet(grid, limits, Signer.from_environment())
        members = members_of(experiment, control, fleet, directory.path)
        members.wait(control.wait)
        complaints = Complaints(experiment.num_clients, experiment.assumed_honest)
        federation = Deployed(Answers(experiment, fleet, members), audit, complaints)
        secret = experiment.seed if audit else directory.secret()  # a test's rounds are those of the simulation
        canonical = audit.canonical() if audit else own_form(experiment, initial)
        server = server_of(members, experiment, canonical, secret)
        start = partial(first_list, experiment, initial)
        with watched(experiment, control.live, partial(view_nodes, fleet, members)) as observe:
            state = play(experiment, server, federation, start, directory, observe)
        if not any(record.born for record in directory.records()):
            complaints.end()
        found = audit.result(state.models) if audit else {}
        summary = found | summarise(experiment, state, directory)
        directory.finish(state, summary)
    return summary


def members_of(experiment: Experiment, control: Control, fleet: Fleet, folder: Path) -> Members:
    """Who is which client: as many as the experiment says, or whoever is on the roll."""
    if not control.open_roll:
        return Members(fleet, experiment.num_clients, folder / "nodes.json")
    return OpenMembers(fleet, Seating(experiment, control.vouched), Registered.from_environment(), folder)


def server_of(members: Members, experiment: Experiment, canonical: Canonical | None, secret: int) -> Server:
    """Who plays the rounds."""
    if isinstance(members, OpenMembers):
        return OpenServer(members, canonical, secret)
    return Server(experiment, canonical, secret)


def check_what_nodes_can(experiment: Experiment, control: Control) -> None:
    """Refuse settings that only simulated clients know how to follow, and those that do not go together."""
    if control.open_roll:
        Registered.from_environment()
        Seating(experiment, control.vouched)
    elif control.vouched:
        raise LidflError("vouched goes with open-roll=true; without it set byzantine_fraction")
    for name in ("reach", "lookahead", "client_momentum"):
        if getattr(experiment, name):
            raise LidflError(f"{name} is for simulations so far; leave it out (--{name} 0) with real nodes")
    if experiment.plays.needs:
        raise LidflError(
            f"{experiment.method} needs {experiment.plays.needs}: only a simulation has that; choose another method"
        )


def initial_model(experiment: Experiment) -> Parameters:
    """The user's own model, initialised from the seed."""
    return _own_network(experiment).initial()


def own_form(experiment: Experiment, first: Parameters) -> Canonical | None:
    """The form that models are brought into, if they are to be."""
    return canonical_form(experiment, _own_network(experiment), first)


def _own_network(experiment: Experiment) -> Network:
    if models.resolve(experiment.model).wants:
        raise LidflError(f"model '{experiment.model}' depends on the data; name yours, as package.task:model")
    seed = seed_for(experiment.seed, "model")
    return Network(models.build_model(experiment.model, (0, 0, 0), 0, seed))


@contextmanager
def watched(experiment: Experiment, port: int, nodes: Nodes) -> Iterator[Observer]:
    """Tell every round, and serve the live page if it has a port."""
    if not port:
        yield tell
        return
    voters = experiment.voters or experiment.num_clients
    watch = Watch(headline(experiment), experiment.rounds, voters, nodes)

    def both(progress: Progress) -> None:
        tell(progress)
        watch.observe(progress)

    with served(watch, port) as address:
        log.info("the live page is at %s", address)
        yield both


def tell(progress: Progress) -> None:
    """Say what happened in a round, in a line of the log."""
    experiment = progress.experiment
    voters = progress.record.voters_of(experiment.voters, experiment.num_clients)
    line = log_line(progress.record, experiment.rounds, voters)
    log.info(line, extra={"record": progress.record.to_json()})


@contextmanager
def logged(directory: RunDirectory, form: str) -> Iterator[None]:
    """Write to server.log, and to what `flwr log` shows: every round, and which nodes join, fail or are late."""
    file = logging.FileHandler(directory.path / "server.log")
    handlers: list[logging.Handler] = [file, logging.StreamHandler(sys.stdout)]
    logger = logging.getLogger("lidfl")
    for handler in handlers:
        handler.setFormatter(JsonLines() if form == "json" else logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    except LidflError as error:
        logger.error("%s%s", STOPPED, error)
        raise
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
        file.close()


class JsonLines(logging.Formatter):
    """A line of JSON for every message; that of a round has all that is known of it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": when, "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(line | ({"round": record.record} if hasattr(record, "record") else {}))
