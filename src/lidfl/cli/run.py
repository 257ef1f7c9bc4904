"""`lidfl run`: one experiment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lidfl.cli.display import print_result, shown
from lidfl.cli.flags import PluginFlag, given_flags, with_flags
from lidfl.cli.output import write_json
from lidfl.errors import LidflError
from lidfl.files import read_toml
from lidfl.settings.checks import refuse_cautions
from lidfl.settings.experiment import Experiment
from lidfl.settings.headline import headline

if TYPE_CHECKING:
    from lidfl.runs.loop import Observer, Progress


@dataclass(kw_only=True)
class RunOptions:
    """Train under attack, show it, and write the result to a run directory."""

    config: Path | None = None
    """TOML file of settings; flags go before it."""
    resume: bool = False
    """Go on from the last checkpoint."""
    from_round: int = 0
    """With --resume: go on from the state after this round, if it is still kept (0: the last)."""
    overwrite: bool = False
    """Delete the run that is there and start anew."""
    strict: bool = False
    """Refuse what would only be warned of, such as a rule beyond its range."""
    quiet: bool = False
    """Show nothing while it runs."""
    plugin: PluginFlag = ()
    """A file of your own attacks, rules or models, loaded first and recorded; may be given again."""
    json: bool = False
    """Show nothing while it runs, and write its summary for programs."""
    live: int = 0
    """A port of this machine for a page that shows the run while it goes, and for its metrics."""

    def __call__(self) -> None:
        """Run the experiment that the file and the flags describe."""
        experiment = Experiment.of(self.settings())
        if self.strict:
            refuse_cautions(experiment)
        if self.from_round and not self.resume:
            raise LidflError("--from-round goes with --resume")
        from lidfl.simulation.simulator import run  # torch, now that all words are right

        with (
            shown(experiment, quiet=self.quiet or self.json) as observe,
            on_a_page(experiment, self.live, observe) as watched,
        ):
            summary = run(
                experiment,
                resume=self.resume,
                overwrite=self.overwrite,
                from_round=self.from_round,
                observe=watched,
            )
        write_json(summary) if self.json else print_result(experiment, summary)

    def settings(self) -> dict[str, Any]:
        """The settings of the file, and over them the flags that were given.

        A run records where it was written; under another name or with another seed it is another run, elsewhere.
        """
        told, given = read_toml(self.config) if self.config else {}, given_flags(self, Experiment)
        if {"name", "seed"} & given.keys() and told.get("out") == f"runs/{told.get('name')}-{told.get('seed')}":
            del told["out"]
        return told | given


@contextmanager
def on_a_page(experiment: Experiment, port: int, observe: "Observer | None") -> "Iterator[Observer | None]":
    """Show a run on the live page too, if it has a port."""
    if not port:
        yield observe
        return
    from lidfl.live.serving import served
    from lidfl.live.watch import Watch

    watch = Watch(headline(experiment), experiment.rounds, experiment.voters or experiment.num_clients)

    def both(progress: "Progress") -> object:
        watch.observe(progress)
        return observe(progress) if observe else None

    with served(watch, port) as address:
        Console(stderr=observe is None).print(f"live at {address}", highlight=False)
        yield both


FROM_DATA = "(default: the data set's)"

Run = with_flags(RunOptions, Experiment, unset=FROM_DATA, but_for={"plugin"})
