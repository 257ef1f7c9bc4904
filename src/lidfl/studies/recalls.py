"""What accuracy hides in runs whose classes are unequal: balanced accuracy and the lowest recall of a class."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from lidfl.runs.classes import are_unequal
from lidfl.studies.sweep import Result

COLUMNS = ("balanced", "lowest recall")
ABOUT = (
    "classes are unequal: balanced is the mean recall over classes of what honest clients deploy, "
    "lowest recall that of the class that fares worst"
)


@dataclass(frozen=True)
class Recalls:
    """Means over some runs; None if no run tells."""

    balanced: float | None = None
    lowest: float | None = None

    def texts(self) -> list[str]:
        """As the columns of a table show them."""
        return ["–" if value is None else f"{value:.3f}" for value in (self.balanced, self.lowest)]


def any_unequal(results: Iterable[Result]) -> bool:
    """Whether the classes of some run are unequal."""
    return any(are_unequal(summary) for _, summary in results)


def recalls_of(results: Sequence[Result]) -> Recalls:
    """What runs tell of their classes."""
    told = [summary for _, summary in results if "deployed_lowest_recall" in summary]
    if not told:
        return Recalls()
    names = ("deployed_balanced_accuracy", "deployed_lowest_recall")
    return Recalls(*(fmean(summary[name] for summary in told) for name in names))
