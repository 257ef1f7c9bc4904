"""The command line: parses and delegates."""

import json
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import tyro
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from lidfl import (
    aggregators,
    attacks,
    elections,
    models,
    partitions,
    planning,
    protocol,
    reproduce,
    reproduction,
    tables,
    vote_attacks,
)
from lidfl.config import Experiment, read_toml
from lidfl.datasets import dataset
from lidfl.display import display, estimate_table, headline, watch
from lidfl.errors import LidflError
from lidfl.picking import Choice, pick
from lidfl.registry import Registry
from lidfl.rundir import RunDirectory, resume_command
from lidfl.simulation import Summary, run
from lidfl.sweep import cluster, estimate, play_all, read_sweep

REGISTRIES: list[Registry[Any]] = [
    dataset,
    partitions.partition,
    models.model,
    aggregators.aggregator,
    attacks.attack,
    vote_attacks.vote_attack,
    elections.election,
    protocol.proposal,
]


@dataclass(kw_only=True)
class RunOptions:
    """Train under attack, show it, and write the result to a run directory."""

    config: Path | None = None
    """TOML file of settings; flags go before it."""
    resume: bool = False
    """Go on from the last checkpoint."""
    overwrite: bool = False
    """Delete the run that is there and start anew."""
    quiet: bool = False
    """Show nothing while it runs."""

    def __call__(self) -> None:
        """Run the experiment that the file and the flags describe."""
        console = Console()
        experiment = Experiment.of(self.settings())
        play = partial(run, experiment, resume=self.resume, overwrite=self.overwrite)
        summary = run_shown(experiment, console, play, resume_command(Path(experiment.out)), quiet=self.quiet)
        print_result(console, experiment, summary)

    def settings(self) -> dict[str, Any]:
        """The settings of the file, and over them the flags that were given."""
        return (read_toml(self.config) if self.config else {}) | given_flags(self, Experiment)


def given_flags(command: object, settings: type[Any]) -> dict[str, Any]:
    """The settings that were given as flags."""
    flags = {setting.name: getattr(command, setting.name, None) for setting in fields(settings)}
    return {name: value for name, value in flags.items() if value is not None}


def _flag(setting: Any) -> tuple[str, Any, Any]:
    """A setting as a flag that may be left out."""
    hint = f"(default: {setting.default})"
    if setting.default is None:
        unset = setting.metadata.get("unset", "(default: the data set's)")
        hint = "" if "(default:" in setting.metadata["help"] else unset
    argument = tyro.conf.arg(help=setting.metadata["help"], help_behavior_hint=hint)
    return setting.name, Annotated[setting.type | None, argument, tyro.conf.DisallowNone], None


Run = make_dataclass("Run", map(_flag, fields(Experiment)), bases=(RunOptions,), kw_only=True)
Run.__doc__ = RunOptions.__doc__


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
        console = Console()
        if self.insecure:
            console.print("INSECURE: no TLS, no node keys; anybody who reaches the port can vote", style="bold red")
        experiment, play, again, title = self._of_app(self.app) if self.app else self._of_experiment()
        play = partial(play, resume=self.resume, overwrite=self.overwrite, insecure=self.insecure)
        summary = run_shown(experiment, console, play, again, title=title, quiet=self.quiet)
        print_result(console, experiment, summary)

    def _of_experiment(self) -> "Playing":
        from lidfl.flower.federation import play_locally

        experiment = Experiment.of(self.settings())
        again = f"lidfl federation up --config {Path(experiment.out) / 'experiment.toml'} --resume"
        return experiment, partial(play_locally, experiment), again, headline(experiment)

    def _of_app(self, folder: Path) -> "Playing":
        from lidfl.flower.apps import read_app
        from lidfl.flower.federation import liars_of, play_app

        if self.config:
            raise LidflError("--app has its own settings; leave out --config")
        flags = given_flags(self, Experiment)
        behaviour = {name: flags.pop(name) for name in ("attack", "vote_attack") if name in flags}
        app = read_app(folder, flags | ({"num_clients": self.nodes} if self.nodes else {}))
        fraction = fraction_of(self.byzantine or 0, app.experiment.num_clients)
        liars = liars_of(app.experiment.with_settings(**behaviour, byzantine_fraction=fraction, list_size=None))
        title = f"{folder}: {app.experiment.num_clients} nodes, {len(liars)} of them told to attack"
        title += f", list of {app.experiment.list_size}" if app.experiment.keeps_list else ""
        again = "the same command and --resume"
        return app.experiment, partial(play_app, app, liars), again, title

    def settings(self) -> dict[str, Any]:
        """The settings of the file and the flags; nodes and Byzantine ones are counted, not a fraction."""
        fresh = self.config is None
        settings = ({"rounds": 20, "eval_every": 1} if fresh else {}) | super().settings()
        nodes = self.nodes or (6 if fresh else settings.get("num_clients", 6))
        count = self.byzantine if self.byzantine is not None else (4 if fresh else None)
        if count is not None:
            settings["byzantine_fraction"] = fraction_of(count, nodes)
        return settings | {"num_clients": nodes}


Playing: TypeAlias = tuple[Experiment, Callable[..., Summary], str, str]
"""What is played, the function that plays it, the command that goes on after a stop, and a headline."""


def fraction_of(count: int, nodes: int) -> float:
    """The Byzantine fraction that stands for so many nodes."""
    if not 0 <= count < nodes:
        raise LidflError(f"--byzantine must be from 0 to {nodes - 1}, one less than the nodes")
    return math.ceil(1e6 * count / nodes) / 1e6  # up: ⌊fraction·m⌋ is the count


_COUNTED = {"num_clients", "byzantine_fraction"}
Federation = make_dataclass(
    "Federation",
    [_flag(setting) for setting in fields(Experiment) if setting.name not in _COUNTED],
    bases=(FederationOptions,),
    kw_only=True,
)
Federation.__doc__ = FederationOptions.__doc__


@dataclass
class InitFlower:
    """Write a Flower app that trains on digits, to start yours from."""

    folder: tyro.conf.Positional[Path]
    """Where to; a new folder."""

    def __call__(self) -> None:
        """Write the app and say how to run it."""
        from lidfl.flower.template import write_app

        write_app(self.folder)
        Console().print(f"written to {self.folder}; its README.md says how to run it", soft_wrap=True)


@dataclass
class Pick:
    """Choose a model from a finished run's list on one client's own data, and write it."""

    run: tyro.conf.Positional[Path]
    """The run directory."""
    dataset: str | None = None
    """Data to judge with (default: that of the run); npz:path is your own."""
    client: int | None = None
    """Whose share of the data; left out, all of --dataset is yours."""
    app: Path | None = None
    """The Flower app whose run this is: judge with the data of its node --client."""
    out: Path | None = None
    """File to write the chosen model to (default: in the run directory)."""

    def __call__(self) -> None:
        """Judge the list and print how it looks to the client."""
        choice = self._choice()
        table = Table("model", "validation loss", "accuracy", "")
        for position, model in enumerate(choice.ids):
            mark = "← chosen" if position == choice.position else ""
            numbers = (choice.losses[position], choice.accuracies[position])
            table.add_row(str(model), *("–" if math.isnan(n) else f"{n:.3f}" for n in numbers), mark)
        console = Console()
        console.print(table)
        console.print(f"written to {choice.path}", highlight=False, soft_wrap=True)

    def _choice(self) -> Choice:
        if self.app is None:
            return pick(self.run, dataset=self.dataset, client=self.client, out=self.out)
        from lidfl.flower import require_flower

        require_flower()
        from lidfl.flower.apps import pick_from, read_app

        if self.client is None or self.dataset:
            raise LidflError("--app goes with --client, the number of a node, and without --dataset")
        return pick_from(self.run, read_app(self.app, {}), client=self.client, out=self.out)


@dataclass
class SweepRuns:
    """Run every combination of the lists in a sweep file, several at a time; finished runs are skipped."""

    file: tyro.conf.Positional[Path]
    """The sweep file."""
    out: Path | None = None
    """Where the run directories go (default: runs/<name of the sweep>)."""
    workers: int = os.cpu_count() or 1
    """How many runs at a time."""
    threads: int = 1
    """Threads of each run: one is best when there is a worker a core."""
    backend: Literal["local", "ray", "dask"] = "local"
    """Processes of this machine, or a cluster (lidfl[ray], lidfl[dask])."""
    address: str | None = None
    """Address of the cluster (default: one that is started here)."""
    dry_run: bool = False
    """Only say how many runs there are and how long they will take."""

    def __call__(self) -> None:
        """Run what is not finished, or say what that would take."""
        console, sweep = Console(), read_sweep(self.file, self.out)
        waiting = len(sweep.waiting)
        console.print(f"{sweep.name}: {len(sweep.runs)} runs, {waiting} to do, in {sweep.out}", highlight=False)
        if self.dry_run:
            console.print(estimate_table(list(estimate(sweep)), self.workers))
            return
        with cluster(self.backend, self.address), saying_how_to_go_on(console):
            failed = watch(sweep, play_all(sweep, self.workers, self.threads, self.backend), console)
        if failed:
            raise LidflError(f"{len(failed)} of {waiting} runs failed; the next call tries them again")


@dataclass
class Reproduce:
    """Run one of the paper's tables and print ours beside the paper's, cell by cell."""

    name: tyro.conf.Positional[str]
    """Which one, such as femnist-lr-0.6; `all` for all; `list` shows them."""
    scale: float = 1.0
    """How many of the paper's rounds to play: 0.2 is a fifth."""
    seeds: int | None = None
    """How many of the paper's five seeds to use (default: all)."""
    groups: tuple[str, ...] = ()
    """Only these groups of the experiment, such as lidfl."""
    columns: tuple[str, ...] = ()
    """Only these columns of the table, such as lie."""
    out: Path | None = None
    """Where the run directories go (default: runs/<name>)."""
    workers: int = os.cpu_count() or 1
    """How many runs at a time."""
    results: Path = Path("results")
    """Where results are kept once runs are finished; what is there is not run again."""
    show_only: bool = False
    """Run nothing, compare what is there."""
    page: Path | None = None
    """Also write all that is kept, of every experiment, as a page of Markdown."""

    def __call__(self) -> None:
        """Run what is not finished, then compare."""
        console = Console()
        if self.name == "list":
            console.print("\n".join(reproduce.names()), highlight=False)
            return
        for name in reproduce.names() if self.name == "all" else [self.name]:
            replace(self, name=name).one(console)
        if self.page:
            self.page.write_text(reproduction.page(self.results, self.page.parent), encoding="utf-8")

    def one(self, console: Console) -> None:
        """One experiment."""
        sweep = reproduce.planned(
            self.name,
            scale=self.scale,
            seeds=self.seeds,
            groups=self.groups,
            columns=self.columns,
            out=self.out,
        )
        store = reproduce.Store(self.results, self.name)
        missing = store.missing(sweep)
        with saying_how_to_go_on(console):
            failed = [] if self.show_only else watch(missing, play_all(missing, self.workers), console)
        store.keep(sweep)
        console.print(reproduce.as_rich(*reproduce.compare(sweep, store.results(sweep))))
        console.print("ours ± deviation over seeds, (the paper's), difference", highlight=False)
        if failed:
            raise LidflError(f"{len(failed)} runs failed; the next call tries them again")


@dataclass
class TableOfResults:
    """Mean ± standard deviation over seeds of a sweep's results."""

    sweep: tyro.conf.Positional[Path]
    """The folder of the sweep's runs."""
    rows: str = "method"
    """The setting that makes the rows."""
    columns: str = "attack"
    """The setting that makes the columns."""
    value: str = "test_accuracy"
    """What to show, from the runs' summaries."""
    format: Literal["terminal", "csv", "markdown", "latex"] = "terminal"
    """How to write it."""

    def __call__(self) -> None:
        """Print the table."""
        grid = tables.tabulate(tables.read_results(self.sweep), self.rows, self.columns, self.value)
        if self.format == "terminal":
            Console().print(tables.as_rich(grid))
        else:
            written = {"csv": tables.as_csv, "markdown": tables.as_markdown, "latex": tables.as_latex}
            sys.stdout.write(written[self.format](grid))


@dataclass(kw_only=True)
class PlanOptions:
    """What the guarantee promises: list, votes, clients, validation data, committees and convergence."""

    json: bool = False
    """Write it for programs."""

    def __call__(self) -> None:
        """Print every number with a sentence."""
        given = given_flags(self, planning.Question)
        made = planning.plan(planning.Question(**given))
        if self.json:
            sys.stdout.write(json.dumps(planning.as_dict(made), indent=1, ensure_ascii=False) + "\n")
        else:
            Console(highlight=False).print(planning.as_rich(made, given))


Plan = make_dataclass("Plan", map(_flag, fields(planning.Question)), bases=(PlanOptions,), kw_only=True)
Plan.__doc__ = PlanOptions.__doc__


@dataclass
class Report:
    """Write a run or a sweep as one HTML page that opens anywhere, and as figures for a paper."""

    sources: tyro.conf.Positional[tuple[Path, ...]]
    """A run directory, a folder of runs, or a results file; several are shown together."""
    out: Path | None = None
    """The page (default: report.html in the folder)."""
    figures: Path | None = None
    """A folder for the figures as files (default: none are written)."""
    formats: tuple[str, ...] = ("svg", "pdf", "png")
    """How figures are written."""

    def __call__(self) -> None:
        """Write the page and say where it is."""
        from lidfl.report import write_report  # its libraries take a second to load, which only a report should

        page, *drawn = write_report(self.sources, out=self.out, figures=self.figures, formats=self.formats)
        more = f", {len(drawn)} figures in {self.figures}" if drawn else ""
        Console().print(f"report: {page}{more}", highlight=False, soft_wrap=True)


@dataclass
class ListRegistered:
    """Show every data set, partition, model, aggregator, attack and election, with its options."""

    def __call__(self) -> None:
        """Print a table of each kind."""
        console = Console()
        for registry in REGISTRIES:
            table = Table("name", "options", "what it is", title=registry.kind, title_justify="left", expand=True)
            table.columns[2].ratio = 1
            for row in registry.describe():
                table.add_row(*row)
            console.print(table)


@dataclass
class Demo:
    """FedAvg and LiD-FL on the embedded digits with 60 % of the clients Byzantine, side by side."""

    out: Path = Path("runs")
    """Where the two run directories go."""

    def __call__(self) -> None:
        """Run both, print the table and write their report."""
        from lidfl.report import write_report  # as above

        console = Console()
        table = Table("method", "test accuracy", "deployed", "seconds", "run directory")
        places = []
        for method in ["fedavg", "lidfl"]:
            out = str(self.out / f"demo-{method}")
            experiment = Experiment(name=f"demo-{method}", method=method, attack="sign_flip", out=out)
            play = partial(run, experiment, overwrite=True)
            summary = run_shown(experiment, console, play, resume_command(Path(out)))
            accuracies = [f"{summary[key]:.3f}" for key in ("test_accuracy", "deployed_accuracy")]
            table.add_row(method, *accuracies, f"{summary['seconds']:.1f}", out)
            places.append(Path(out))
        console.print(table)
        page, *_ = write_report(places, out=self.out / "demo.html")
        console.print(f"report: {page}", highlight=False, soft_wrap=True)


def run_shown(
    experiment: Experiment,
    console: Console,
    play: Callable[..., Summary],
    again: str,
    *,
    title: str | None = None,
    quiet: bool = False,
) -> Summary:
    """Play an experiment with a display; on Ctrl-C say how to go on."""
    if not quiet:
        logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_log_handler(console)])
        logging.getLogger("lidfl").setLevel(logging.INFO)
    try:
        with display(experiment, console, title=title, quiet=quiet) as observe:
            return play(observe=observe)
    except KeyboardInterrupt:
        if RunDirectory(experiment.out).checkpoint_file.exists():
            console.print(f"\nstopped; go on with: {again}", soft_wrap=True)
        raise


@contextmanager
def saying_how_to_go_on(console: Console) -> Iterator[None]:
    """Many runs that are interrupted say that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        console.print("\nstopped; finished runs are kept, and the same command goes on with the others")
        raise


def print_result(console: Console, experiment: Experiment, summary: Summary) -> None:
    """One line that says how a run ended; where nobody can test the list, only how long it took."""
    work = f"{summary['rounds']} rounds in {summary['seconds']:.1f} s: {experiment.out}"
    if "test_accuracy" in summary:
        accuracies = (summary[name] for name in ("test_accuracy", "deployed_accuracy"))
        work = "test accuracy {:.3f}, deployed {:.3f} after ".format(*accuracies) + work
    console.print(work, highlight=False, soft_wrap=True)


def _log_handler(console: Console) -> logging.Handler:
    return RichHandler(console=console, show_time=False, show_level=False, show_path=False)


COMMANDS: dict[str, Callable[..., Any]] = {
    "run": Run,
    "sweep": SweepRuns,
    "table": TableOfResults,
    "reproduce": Reproduce,
    "report": Report,
    "pick": Pick,
    "plan": Plan,
    "list": ListRegistered,
    "demo": Demo,
    "federation": Federation,
    "init-flower": InitFlower,
}


def main() -> None:
    """Entry point of the `lidfl` command."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # being asked to end is like Ctrl-C: nothing is lost
    sys.path.insert(0, os.getcwd())  # so that a user's own package.module:function is found
    try:
        command = tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="lidfl", description="Federated learning that survives a malicious majority."
        )
        command()
    except LidflError as error:
        print(f"lidfl: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
