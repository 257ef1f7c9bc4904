"""Progress where the user is: in a terminal, in a notebook, or nowhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from time import monotonic
from typing import TypeAlias

from rich.console import Console
from rich.live import Live

from lidfl.cli.display import LiveView, LogView
from lidfl.runs.loop import Observer, Progress
from lidfl.runs.telling import story
from lidfl.settings.experiment import Experiment
from lidfl.settings.headline import headline

Show: TypeAlias = Callable[[str], object]
"""Puts HTML into the output of a notebook's cell, in the place of what was there."""

PAUSE = 0.25
"""Seconds between two pictures in a notebook."""


@contextmanager
def showing(experiment: Experiment, progress: bool | None) -> Iterator[Observer | None]:
    """Show a run for as long as the context is open; on Ctrl-C say how to go on."""
    console = Console()
    show = None if progress is False else notebook_output()
    try:
        if progress is False:
            yield None
        elif show:
            yield NotebookView(experiment, show).observe
        elif console.is_terminal:
            view = LiveView(experiment, headline(experiment))
            with Live(get_renderable=view.render, console=console, refresh_per_second=4):
                yield view.observe
        else:
            yield LogView(console).observe if progress else None
    except KeyboardInterrupt:
        if progress is not False:
            console.print("stopped; go on with lidfl.run(experiment, resume=True)", highlight=False)
        raise


def notebook_output() -> Show | None:
    """How to show something in the notebook that this runs in; None if it runs in none."""
    return _of_marimo() or _of_jupyter()


def _of_marimo() -> Show | None:
    marimo = sys.modules.get("marimo")
    if marimo is None or not marimo.running_in_notebook():
        return None
    return lambda html: marimo.output.replace(marimo.Html(html))


def _of_jupyter() -> Show | None:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if ipython is None or shell is None or type(shell).__name__ == "TerminalInteractiveShell":
        return None
    display = ipython.display
    handle = display.display(display.HTML(""), display_id=True)
    return lambda html: handle.update(display.HTML(html))


class NotebookView:
    """A bar and a line below it, drawn a few times a second."""

    def __init__(self, experiment: Experiment, show: Show) -> None:
        self.title = headline(experiment)
        self.show = show
        self.tested = ""
        self.drawn = -PAUSE

    def observe(self, progress: Progress) -> None:
        """Draw the state after a round, unless it was drawn a moment ago; the last is always drawn."""
        record, rounds = progress.record, progress.experiment.rounds
        if record.tested:
            self.tested = f"accuracy {record.best_accuracy:.3f}"
        now = monotonic()
        if now - self.drawn >= PAUSE or record.number == rounds:
            self.drawn = now
            self.show(self.picture(progress))

    def picture(self, progress: Progress) -> str:
        """The state as HTML."""
        number, rounds = progress.record.number, progress.experiment.rounds
        told = [f"round {number}/{rounds}", self.tested, story(progress.record).partition(": ")[2]]
        line = escape(" · ".join(filter(None, told)))
        bar = f'<progress max="{rounds}" value="{number}" style="width: 100%"></progress>'
        return f"<div><strong>{escape(self.title)}</strong><br>{bar}<br>{line}</div>"
