"""Where classes are unequal, an accuracy alone misleads: 99 % right may be every image of the rare class wrong."""

from collections.abc import Mapping
from typing import Any

FEW = 5
"""So many classes are named."""
UNEQUAL = 0.2
"""Classes are unequal if the rarest has less than this part of its fair share."""


def are_unequal(summary: Mapping[str, Any]) -> bool:
    """Whether the rarest class of the test images has less than a fifth of one in so many classes."""
    return "smallest_class" in summary and summary["smallest_class"] < UNEQUAL / summary["classes"]


def classes_in_words(summary: Mapping[str, Any]) -> str | None:
    """What accuracy hides, in a line; None where it hides nothing, or where nobody has counted classes."""
    return "; ".join(filter(None, (_unequal_in_words(summary), _untested_in_words(summary)))) or None


def _untested_in_words(summary: Mapping[str, Any]) -> str:
    """Which classes of the data nothing is known of; a few of them by their numbers."""
    missing = summary.get("untested_classes", [])
    if not missing:
        return ""
    named = ", ".join(map(str, missing[:FEW])) + (", …" if len(missing) > FEW else "")
    what = f"class {named} is" if len(missing) == 1 else f"{len(missing)} classes ({named}) are"
    return f"{what} in the data and in no honest client's test images"


def _unequal_in_words(summary: Mapping[str, Any]) -> str:
    if not are_unequal(summary):
        return ""
    span = f"{100 * summary['smallest_class']:.2g} to {100 * summary['largest_class']:.2g} % of the test images"
    return (
        f"classes are unequal, {span} each: balanced accuracy {summary['deployed_balanced_accuracy']:.3f}, "
        f"lowest recall {summary['deployed_lowest_recall']:.3f}"
    )
