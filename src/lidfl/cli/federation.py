"""`lidfl federation up`: one experiment, or an app, with real servers and clients on this machine."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from lidfl.cli.display import print_result, shown
from lidfl.cli.flags import given_flags, with_flags
from lidfl.cli.output import write_json
from lidfl.cli.run import FROM_DATA, RunOptions
from lidfl.errors import LidflError
from lidfl.settings.experiment import Experiment
from lidfl.settings.headline import headline

MOST_NODES = 1000


@dataclass(frozen=True)
class Playing:
    """What is to be played, and how."""

    experiment: Experiment
    play: Callable[..., dict[str, Any]]
    again: str
    """The command that goes on after a stop."""
    title: str


@dataclass(kw_only=True)
class FederationOptions(RunOptions):
    """Run an experiment with Flower's real servers and clients on this machine (lidfl[flower])."""

    action: Annotated[Literal["up"], tyro.conf.Positional]
    """up: start everything, run, and stop everything."""
    app: Path | None = None
    """An app of your own, as `lidfl init-flower` writes them, instead of an experiment."""
    nodes: int | None = None
    """How many nodes there are (default: 6, or what your app says)."""
    byzantine: int | None = None
    """How many of them are Byzantine, all of them real processes that attack (default: 4, of your app's none)."""
    insecure: bool = False
    """Without TLS and without node keys."""

    def __call__(self) -> None:
        """Start a federation, run the experiment in it, and stop it."""
        from lidfl.flower import require_flower

        require_flower()
        if self.insecure:
            warning = "INSECURE: no TLS, no node keys; anybody who reaches the port can vote"
            Console(stderr=self.json).print(warning, style="bold red")
        playing = self._of_app(self.app) if self.app else self._of_experiment()
        silent = self.quiet or self.json
        with shown(playing.experiment, title=playing.title, again=playing.again, quiet=silent) as observe:
            how = dict(resume=self.resume, overwrite=self.overwrite, insecure=self.insecure)
            summary = playing.play(**how, observe=observe)
        write_json(summary) if self.json else print_result(playing.experiment, summary)

    def _of_experiment(self) -> Playing:
        experiment = Experiment.of(self.settings())
        from lidfl.flower.local.playing import play_locally

        again = f"lidfl federation up --config {Path(experiment.out) / 'experiment.toml'} --resume"
        return Playing(experiment, partial(play_locally, experiment, live=self.live), again, headline(experiment))

    def _of_app(self, folder: Path) -> Playing:
        from lidfl.flower.apps import read_app
        from lidfl.flower.local.playing import liars_of, play_app

        if self.config:
            raise LidflError("--app has its own settings; leave out --config")
        flags = given_flags(self, Experiment)
        behaviour = {name: flags.pop(name) for name in ("attack", "vote_attack") if name in flags}
        flags |= {"live": self.live} if self.live else {}
        app = read_app(folder, flags | ({"num_clients": self.nodes} if self.nodes else {}))
        fraction = fraction_of(self.byzantine or 0, app.experiment.num_clients)
        liars = liars_of(app.experiment.with_settings(**behaviour, byzantine_fraction=fraction, list_size=None))
        title = f"{folder}: {app.experiment.num_clients} nodes, {len(liars)} of them told to attack"
        title += f", list of {app.experiment.list_size}" if app.experiment.keeps_list else ""
        return Playing(app.experiment, partial(play_app, app, liars), "the same command and --resume", title)

    def settings(self) -> dict[str, Any]:
        """The settings of the file and the flags; nodes and Byzantine ones are counted, not a fraction."""
        fresh = self.config is None
        # A name of its own, so that it stands beside a simulated run and not in its place.
        usual = {"rounds": 20, "eval_every": 1, "name": "federation"} if fresh else {}
        settings: dict[str, Any] = {**usual, **super().settings()}
        if self.nodes is not None and not 1 <= self.nodes <= MOST_NODES:
            raise LidflError(f"--nodes must be from 1 to {MOST_NODES:,}, not {self.nodes}: each is a process here")
        nodes = self.nodes or (6 if fresh else settings.get("num_clients", 6))
        count = self.byzantine if self.byzantine is not None else (4 if fresh else None)
        if count is not None:
            settings["byzantine_fraction"] = fraction_of(count, nodes)
        return settings | {"num_clients": nodes}


def fraction_of(count: int, nodes: int) -> float:
    """The Byzantine fraction that stands for so many nodes."""
    if not 0 <= count < nodes:
        raise LidflError(f"--byzantine must be from 0 to {nodes - 1}, one less than the nodes")
    return math.ceil(1e6 * count / nodes) / 1e6  # up: ⌊fraction·m⌋ is the count


COUNTED = {"num_clients", "byzantine_fraction", "plugin"}

FederationUp = with_flags(FederationOptions, Experiment, unset=FROM_DATA, but_for=COUNTED)
