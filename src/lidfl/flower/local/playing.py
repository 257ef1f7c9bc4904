"""Plays an experiment, or an app of the user's own, with real servers and clients on this machine."""

from collections.abc import Mapping
from time import monotonic, sleep
from typing import Any

from lidfl.errors import LidflError
from lidfl.flower.apps import OwnApp
from lidfl.flower.hosting import START_UP
from lidfl.flower.local.federation import Liars, LocalFederation
from lidfl.flower.local.processes import interrupted_once
from lidfl.flower.misbehaving import check_attacks
from lidfl.flower.presence import is_at_work
from lidfl.flower.server import STOPPED
from lidfl.learning.models import absolute_model
from lidfl.plugins import absolute
from lidfl.runs.directory import RunDirectory, Summary
from lidfl.runs.loop import Observer, Progress
from lidfl.settings.experiment import Experiment
from lidfl.settings.objects import objects_of
from lidfl.settings.world import draw_byzantine

LOOK = 0.3
"""Seconds between two looks at a run."""


def liars_of(experiment: Experiment) -> Liars:
    """The Byzantine clients of an experiment, all of which attack; refused if a node cannot attack that way."""
    if experiment.num_byzantine:
        check_attacks(experiment.attack, experiment.vote_attack)
    config = {"attack": experiment.attack, "vote-attack": experiment.vote_attack}
    return dict.fromkeys(draw_byzantine(experiment), config)


def play_locally(
    experiment: Experiment,
    *,
    resume: bool = False,
    overwrite: bool = False,
    insecure: bool = False,
    live: int = 0,
    observe: Observer | None = None,
) -> Summary:
    """Run an experiment with real servers and clients on this machine."""
    own = objects_of(experiment)
    if own:
        raise LidflError(f"{own[0]} is an object, which other processes cannot be given; register it by its name")
    places = dict(plugin=absolute(experiment.plugin), model=absolute_model(experiment.model))
    experiment = experiment.with_settings(checkpoint_every=1, engine="loop", **places)
    federation = LocalFederation(experiment, insecure=insecure, liars=liars_of(experiment))
    return _play(federation, {"live": live} if live else {}, resume=resume, overwrite=overwrite, observe=observe)


def play_app(
    app: OwnApp,
    liars: Liars,
    *,
    resume: bool = False,
    overwrite: bool = False,
    insecure: bool = False,
    observe: Observer | None = None,
) -> Summary:
    """Run an app of the user's own with real servers and clients on this machine."""
    if liars and not app.testing:
        raise LidflError(f"the nodes of {app.folder} do not attack unless you write client_app(task, testing=True)")
    federation = LocalFederation(app.experiment, insecure=insecure, app=app.folder, liars=liars)
    return _play(federation, app.config, resume=resume, overwrite=overwrite, observe=observe)


def _play(
    federation: LocalFederation,
    config: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    observe: Observer | None,
) -> Summary:
    with interrupted_once(), federation:
        federation.claim(resume=resume, overwrite=overwrite)
        federation.prepare()
        federation.up()
        federation.submit(**{**config, "resume": True, "out": federation.experiment.out})
        return watch(federation, observe)


def watch(federation: LocalFederation, observe: Observer | None) -> Summary:
    """Show rounds as they end, until the run does; its summary."""
    directory, log = federation.directory, federation.logs / "superlink.log"
    shown, until, running = directory.rounds_done(), monotonic() + START_UP, False
    while not directory.is_finished:
        at_work = is_at_work(directory)
        if running and not at_work and not directory.is_finished:
            raise LidflError(why_stopped(directory) or f"the server app ended before its time; see {log}")
        if not running and not at_work and monotonic() > until:
            raise LidflError(f"the server app does not start; see {log}")
        running = running or at_work
        federation.processes.check("superlink")
        shown = _show(federation, shown, observe)
        sleep(LOOK)
    _show(federation, shown, observe)
    return directory.summary()


def why_stopped(directory: RunDirectory) -> str:
    """What the server has said when it stopped a run; empty if it has not."""
    file = directory.path / "server.log"
    lines = file.read_text().splitlines() if file.exists() else []
    return lines[-1].partition(STOPPED)[2] if lines else ""


def _show(federation: LocalFederation, shown: int, observe: Observer | None) -> int:
    """Show the rounds that were saved since the last look; how many have been shown."""
    directory = federation.directory
    done = directory.rounds_done()
    if observe and done > shown:
        models = directory.checkpoint().models
        for record in list(directory.records())[shown:done]:
            observe(Progress(federation.experiment, models, record))
    return max(done, shown)
