"""What a run shows while it goes: a live table in a terminal, log lines elsewhere, or nothing."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from lidfl.config import Experiment
from lidfl.rundir import RunDirectory
from lidfl.simulation import Observer, Progress
from lidfl.sweep import Ended, Estimate, Sweep
from lidfl.types import Client


@contextmanager
def display(
    experiment: Experiment, console: Console, *, title: str | None = None, quiet: bool = False
) -> Iterator[Observer | None]:
    """An observer that shows the run for as long as the context is open."""
    title = title or headline(experiment)
    if quiet:
        yield None
    elif console.is_terminal:
        view = LiveView(experiment, title)
        with Live(get_renderable=view.render, console=console, refresh_per_second=4):
            yield view.observe
    else:
        console.print(title, highlight=False, soft_wrap=True)
        yield LogView(console).observe


def headline(experiment: Experiment) -> str:
    """One line that says what is being run."""
    attackers = f"{experiment.num_byzantine} of {experiment.num_clients} clients Byzantine"
    attacks = f"attack {experiment.attack}, votes {experiment.vote_attack}"
    size = f", list of {experiment.list_size}" if experiment.keeps_list else ""
    return f"{experiment.method} on {experiment.dataset}-{experiment.model}{size}: {attackers}, {attacks}"


def _bar_columns() -> list[ProgressColumn]:
    times = [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()]
    return [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *times]


class LogView:
    """A line each time the list is tested; where nobody can, a line a round, as a real one takes seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def observe(self, progress: Progress) -> None:
        """Print a line if the round was one of testing, or of a federation of real nodes."""
        line = progress.line
        if "accuracy" in line:
            best = max(line["accuracy"].values())
            text = (
                f"round {line['round'] + 1}/{progress.experiment.rounds}  accuracy {best:.3f}  "
                f"deployed {line['deployed_accuracy']:.3f}  {line['seconds'] * 1000:.0f} ms"
            )
        elif "bytes" in line:
            text = f"{story(line)}; {line['seconds']:.1f} s"
        else:
            return
        self.console.print(text, highlight=False, soft_wrap=True)


class LiveView:
    """A progress bar and the list as a table."""

    def __init__(self, experiment: Experiment, title: str) -> None:
        self.title = title
        self.progress: Progress | None = None
        self.accuracy: dict[str, float] = {}
        self.bar = Bar(*_bar_columns())
        self.task = self.bar.add_task("rounds", total=experiment.rounds)

    def observe(self, progress: Progress) -> None:
        """Take note of a round; it is drawn when the screen is next refreshed."""
        self.progress = progress
        self.accuracy = progress.line.get("accuracy", self.accuracy)

    def render(self) -> RenderableType:
        """The screen as it is now."""
        title = Text(self.title, style="bold")
        if self.progress is None:
            return Group(title, Text("loading data …"))
        self.bar.update(self.task, completed=self.progress.line["round"] + 1)
        table = list_table(self.progress, self.accuracy)
        return Group(title, self.bar, table, Text(story(self.progress.line), style="dim"))


def list_table(progress: Progress, accuracy: dict[str, float]) -> Table:
    """The list, one model a row."""
    table = Table("model", "parent", "age", "votes", "validation loss", "accuracy")
    for column in table.columns:
        column.justify = "right"
    models, line = progress.models, progress.line
    for model, parents, age in zip(models.ids, models.parents, models.ages, strict=True):
        key = str(model)
        votes = str(line["votes"].get(key, "–")) if progress.experiment.keeps_list else "–"
        origin = ", ".join(map(str, parents)) or "–"
        table.add_row(key, origin, str(age), votes, _number(line["loss"].get(key)), _number(accuracy.get(key)))
    return table


def watch(sweep: Sweep, ended: Iterable[Ended], console: Console) -> list[Ended]:
    """Show how a sweep gets on, and at its end what failed; returns that."""
    total = len(sweep.waiting)
    failed = []
    with Bar(*_bar_columns(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("runs", total=total)
        for count, run in enumerate(ended, start=1):
            bar.update(task, completed=count)
            name = Path(run.experiment.out).name
            result = "failed" if run.error else f"{RunDirectory(run.experiment.out).summary()['test_accuracy']:.3f}"
            console.print(f"[{count}/{total}] {name}: {result}", highlight=False, markup=False, soft_wrap=True)
            failed += [run] if run.error else []
    for run in failed:
        console.print(f"{run.experiment.out} failed:\n{run.error}", highlight=False, markup=False, soft_wrap=True)
    return failed


def estimate_table(estimates: Sequence[Estimate], workers: int) -> Table:
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


def story(line: dict[str, Any]) -> str:
    """What happened in a round, in words."""
    if "model" in line:
        text = f"{_who(line['client'])} trained model {line['model']} from {line['parent']}"
    elif "born" in line:
        text = f"{len(line['born'])} candidates, {line['born'][0]['model']} to {line['born'][-1]['model']}"
    else:
        return f"round {line['round'] + 1}: no usable update, the list stays"
    gone = ", ".join(map(str, line["removed"]))
    rejected = sum(line["rejected"].values())
    parts = [f"round {line['round'] + 1}: {text}"]
    parts += [f"out: {gone}"] if gone else []
    parts += [f"margin {line['margin']}"] if line.get("margin") is not None else []
    parts += [f"{rejected} replies rejected"] if rejected else []
    return "; ".join(parts)


def _who(client: Client | list[Client]) -> str:
    return f"{len(client)} clients" if isinstance(client, list) else f"client {client}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
