"""`lidfl run`: one experiment."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lidfl.cli.display import print_result, shown
from lidfl.cli.flags import given_flags, with_flags
from lidfl.errors import LidflError
from lidfl.files import read_toml
from lidfl.settings.checks import refuse_cautions
from lidfl.settings.experiment import Experiment


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

    def __call__(self) -> None:
        """Run the experiment that the file and the flags describe."""
        experiment = Experiment.of(self.settings())
        if self.strict:
            refuse_cautions(experiment)
        if self.from_round and not self.resume:
            raise LidflError("--from-round goes with --resume")
        from lidfl.simulation.simulator import run  # torch, now that all words are right

        with shown(experiment, quiet=self.quiet) as observe:
            summary = run(
                experiment,
                resume=self.resume,
                overwrite=self.overwrite,
                from_round=self.from_round,
                observe=observe,
            )
        print_result(experiment, summary)

    def settings(self) -> dict[str, Any]:
        """The settings of the file, and over them the flags that were given."""
        return (read_toml(self.config) if self.config else {}) | given_flags(self, Experiment)


FROM_DATA = "(default: the data set's)"

Run = with_flags(RunOptions, Experiment, unset=FROM_DATA)
