"""`lidfl sweep`: many runs from one file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from lidfl.cli.display import saying_how_to_go_on, watch
from lidfl.cli.flags import PluginFlag
from lidfl.cli.output import write_json
from lidfl.errors import LidflError
from lidfl.settings.checks import refuse_cautions

if TYPE_CHECKING:
    from lidfl.studies.running import Estimate

MOST_AT_A_TIME = 1024


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
    plugin: PluginFlag = ()
    """A file of your own attacks, rules or models, which every run loads first; may be given again."""
    strict: bool = False
    """Refuse what would only be warned of, such as a rule beyond its range."""
    dry_run: bool = False
    """Only say how many runs there are and how long they will take."""
    json: bool = False
    """With --dry-run: write it for programs."""

    def __call__(self) -> None:
        """Run what is not finished, or say what that would take."""
        check_several("workers", self.workers)
        check_several("threads", self.threads)
        from lidfl.studies.sweep import read_sweep

        if self.json and not self.dry_run:
            raise LidflError("--json goes with --dry-run; for results use lidfl table --json")
        console, sweep = Console(stderr=self.json), read_sweep(self.file, self.out, plugin=self.plugin)
        if self.strict:
            for experiment in sweep.runs:
                refuse_cautions(experiment)
        waiting = len(sweep.waiting)
        console.print(f"{sweep.name}: {len(sweep.runs)} runs, {waiting} to do, in {sweep.out}", highlight=False)
        from lidfl.studies.running import cluster, estimate, run_all

        if self.dry_run:
            estimates = list(estimate(sweep))
            if self.json:
                write_json(estimates_as_dicts(estimates))
            else:
                console.print(estimate_table(estimates, self.workers))
            return
        with cluster(self.backend, self.address), saying_how_to_go_on(console):
            failed = watch(waiting, run_all(sweep, self.workers, self.threads, self.backend), console)
        if failed:
            raise LidflError(f"{len(failed)} of {waiting} runs failed; the next call tries them again")


def check_several(name: str, number: int) -> None:
    """Refuse to do none at a time, or more than any machine does."""
    if not 1 <= number <= MOST_AT_A_TIME:
        raise LidflError(f"--{name} must be from 1 to {MOST_AT_A_TIME:,}, not {number}")


def estimates_as_dicts(estimates: "Sequence[Estimate]") -> list[dict[str, Any]]:
    """What a sweep will take, kind by kind, for programs."""
    return [
        dict(
            method=kind.kind.method_label,
            attack=kind.kind.attack,
            byzantine_fraction=kind.kind.byzantine_fraction,
            runs=kind.runs,
            seconds=kind.seconds,
        )
        for kind in estimates
    ]


def estimate_table(estimates: "Sequence[Estimate]", workers: int) -> Table:
    """What a sweep will take, kind by kind."""
    table = Table("method", "attack", "Byzantine", "runs", "time on one worker")
    for kind in estimates:
        settings = kind.kind
        fraction = str(settings.byzantine_fraction)
        table.add_row(settings.method_label, settings.attack, fraction, str(kind.runs), _duration(kind.seconds))
    total = sum(kind.seconds for kind in estimates)
    runs = str(sum(kind.runs for kind in estimates))
    table.add_section()
    table.add_row("all", "", "", runs, f"{_duration(total)}, {_duration(total / workers)} with {workers} workers")
    return table


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
