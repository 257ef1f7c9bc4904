"""Where classes are unequal, an accuracy alone misleads: 99 % right may be every image of the rare class wrong."""

from collections.abc import Mapping
from typing import Any

UNEQUAL = 0.2
"""Classes are unequal if the rarest has less than this part of its fair share."""


def are_unequal(summary: Mapping[str, Any]) -> bool:
    """Whether the rarest class of the test images has less than a fifth of one in so many classes."""
    return "smallest_class" in summary and summary["smallest_class"] < UNEQUAL / summary["classes"]


def classes_in_words(summary: Mapping[str, Any]) -> str | None:
    """What accuracy hides, in a line; None where classes are equal enough, or where nobody has counted them."""
    if not are_unequal(summary):
        return None
    span = f"{100 * summary['smallest_class']:.2g} to {100 * summary['largest_class']:.2g} % of the test images"
    return (
        f"classes are unequal, {span} each: balanced accuracy {summary['deployed_balanced_accuracy']:.3f}, "
        f"lowest recall {summary['deployed_lowest_recall']:.3f}"
    )
