"""What a run shows while it goes: a live table in a terminal, log lines elsewhere, or nothing."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
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

from lidfl.cli.flags import as_flags
from lidfl.settings.experiment import Experiment
from lidfl.settings.headline import headline

if TYPE_CHECKING:
    from lidfl.runs.loop import Observer, Progress
    from lidfl.studies.running import Ended


@contextmanager
def shown(
    experiment: Experiment, *, title: str | None = None, again: str | None = None, quiet: bool = False
) -> "Iterator[Observer | None]":
    """Show a run for as long as the context is open; on Ctrl-C say how to go on."""
    from lidfl.runs.directory import RunDirectory
    from lidfl.runs.resuming import resume_command

    console = Console()
    if not quiet:
        handler = RichHandler(console=console, show_time=False, show_level=False, show_path=False)
        handler.setFormatter(InFlags("%(message)s"))
        logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
        logging.getLogger("lidfl").setLevel(logging.INFO)
    try:
        with _display(experiment, console, title or headline(experiment), quiet=quiet) as observe:
            yield observe
    except KeyboardInterrupt:
        if RunDirectory(experiment.out).checkpoint_file.exists():
            command = again or resume_command(Path(experiment.out))
            console.print(f"\nstopped; go on with: {command}", soft_wrap=True)
        raise


@contextmanager
def _display(experiment: Experiment, console: Console, title: str, *, quiet: bool) -> "Iterator[Observer | None]":
    if quiet:
        yield None
    elif console.is_terminal:
        view = LiveView(experiment, title)
        with Live(get_renderable=view.render, console=console, refresh_per_second=4):
            yield view.observe
    else:
        console.print(title, highlight=False, soft_wrap=True)
        yield LogView(console).observe


@contextmanager
def saying_how_to_go_on(console: Console) -> Iterator[None]:
    """Many runs that are interrupted say that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        console.print("\nstopped; finished runs are kept, and the same command goes on with the others")
        raise


def print_result(experiment: Experiment, summary: Mapping[str, Any]) -> None:
    """One line that says how a run ended; where nobody can test the list, only how long it took.

    Where classes are unequal, another says what accuracy hides.
    """
    from lidfl.runs.classes import classes_in_words

    work = f"{summary['rounds']} rounds in {summary['seconds']:.1f} s: {experiment.out}"
    if "test_accuracy" in summary:
        best, deployed = summary["test_accuracy"], summary["deployed_accuracy"]
        work = f"honest clients deploy {deployed:.3f} (best model {best:.3f}) after {work}"
    Console().print(work, highlight=False, soft_wrap=True)
    hidden = classes_in_words(summary)
    if hidden:
        Console().print(hidden, highlight=False, soft_wrap=True)


def _bar_columns() -> list[ProgressColumn]:
    times = [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()]
    return [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *times]


class InFlags(logging.Formatter):
    """Warnings in the words of the command line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return as_flags(super().format(record))


class LogView:
    """A line each time the list is tested; where nobody can, a line a round, as a real one takes seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def observe(self, progress: "Progress") -> None:
        """Print a line if the round was one of testing, or of a federation of real nodes."""
        record, experiment = progress.record, progress.experiment
        if record.traffic is not None:
            from lidfl.runs.telling import log_line

            text = log_line(record, experiment.rounds, experiment.voters or experiment.num_clients)
        elif record.tested:
            text = (
                f"round {record.number}/{experiment.rounds}  deployed {record.deployed_accuracy:.3f}  "
                f"best model {record.best_accuracy:.3f}  {record.seconds * 1000:.0f} ms"
            )
        else:
            return
        self.console.print(text, highlight=False, soft_wrap=True)


class LiveView:
    """A progress bar and the list as a table."""

    def __init__(self, experiment: Experiment, title: str) -> None:
        self.title = title
        self.progress: Progress | None = None
        self.accuracy: Mapping[int, float] = {}
        self.bar = Bar(*_bar_columns())
        self.task = self.bar.add_task("rounds", total=experiment.rounds)

    def observe(self, progress: "Progress") -> None:
        """Take note of a round; it is drawn when the screen is next refreshed."""
        self.progress = progress
        self.accuracy = progress.record.accuracy or self.accuracy

    def render(self) -> RenderableType:
        """The screen as it is now."""
        title = Text(self.title, style="bold")
        if self.progress is None:
            return Group(title, Text("loading data …"))
        from lidfl.runs.telling import story

        self.bar.update(self.task, completed=self.progress.record.number)
        table = list_table(self.progress, self.accuracy)
        return Group(title, self.bar, table, Text(story(self.progress.record), style="dim"))


def list_table(progress: "Progress", accuracy: Mapping[int, float]) -> Table:
    """The list, one model a row."""
    table = Table("model", "parent", "age", "votes", "validation loss", "accuracy")
    for column in table.columns:
        column.justify = "right"
    models, record = progress.models, progress.record
    for model, parents, age in zip(models.ids, models.parents, models.ages, strict=True):
        votes = str(record.votes.get(model, "–")) if progress.experiment.keeps_list else "–"
        origin = ", ".join(map(str, parents)) or "–"
        numbers = (_number(record.loss.get(model)), _number(accuracy.get(model)))
        table.add_row(str(model), origin, str(age), votes, *numbers)
    return table


def watch(total: int, ended: "Iterable[Ended]", console: Console) -> "list[Ended]":
    """Show how a sweep of so many runs gets on, and at its end what failed; returns that."""
    from lidfl.runs.directory import RunDirectory

    failed = []
    with Bar(*_bar_columns(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("runs", total=total)
        for count, run in enumerate(ended, start=1):
            bar.update(task, completed=count)
            name = Path(run.experiment.out).name
            result = "failed" if run.error else _deployed(RunDirectory(run.experiment.out).summary())
            console.print(f"[{count}/{total}] {name}: {result}", highlight=False, markup=False, soft_wrap=True)
            failed += [run] if run.error else []
    for run in failed:
        told = as_flags(f"{run.experiment.out} failed:\n{run.error}")
        console.print(told, highlight=False, markup=False, soft_wrap=True)
    return failed


def _deployed(summary: Mapping[str, Any]) -> str:
    return f"deployed {summary['deployed_accuracy']:.3f} (best model {summary['test_accuracy']:.3f})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
