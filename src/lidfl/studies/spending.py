"""What runs cost, in the mean over them: gradient steps, bytes, votes, seconds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from lidfl.runs.costs import costs_of
from lidfl.studies.sweep import Result


@dataclass(frozen=True)
class Spending:
    """The mean costs of some runs; None what no run tells."""

    steps: float | None = None
    """Gradient steps of all clients, those of deployment included."""
    bytes_sent: float | None = None
    """Models and updates, all clients together."""
    votes: float | None = None
    """Ballots, and choices of jurors."""
    seconds: float | None = None

    @classmethod
    def of(cls, results: Sequence[Result]) -> "Spending":
        """The costs of runs, as their summaries tell."""
        known = [(costs, summary) for e, summary in results if (costs := costs_of(e, summary)) is not None]
        return cls(
            steps=_mean(costs.gradient_steps + summary.get("deployment_steps", 0) for costs, summary in known),
            bytes_sent=_mean(costs.bytes_sent for costs, _ in known),
            votes=_mean(costs.ballots for costs, _ in known),
            seconds=_mean(summary.get("seconds") for _, summary in results),
        )

    def texts(self) -> list[str]:
        """As the columns of a table show them."""
        return [
            write(value) if value is not None else "–" for value, write in zip(self._values, WRITE, strict=True)
        ]

    @property
    def _values(self) -> tuple[float | None, ...]:
        return self.steps, self.bytes_sent, self.votes, self.seconds


COLUMNS = ("steps", "MB", "votes", "seconds")
"""The columns of a table of costs."""
WRITE: tuple[Callable[[float], str], ...] = (
    lambda steps: f"{steps:,.0f}",
    lambda size: f"{size / 1e6:,.1f}" if size < 1e8 else f"{size / 1e6:,.0f}",
    lambda votes: f"{votes:,.0f}",
    lambda seconds: f"{seconds:,.1f}",
)
ABOUT = (
    "steps: gradient steps of all clients; MB: models to clients and updates from them; "
    "votes: ballots and jurors' choices; seconds: spent in rounds; means of a run"
)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
