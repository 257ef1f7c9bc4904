"""The result of a run as its file holds it, and whether what was read is one."""

from typing import Any, TypeAlias

from lidfl.files import fits

Summary: TypeAlias = dict[str, Any]
"""The content of summary.json."""

COUNTS = ("rounds", "rounds_skipped", "diverged_at", "smallest_margin", "list_size", "num_byzantine")
MEASURES = ("test_accuracy", "deployed_accuracy", "seconds", "seconds_per_round", "candidates_per_round")
TEXTS = ("version", "commit")
TYPES = {name: kind for names, kind in ((COUNTS, int), (MEASURES, float), (TEXTS, str)) for name in names}


def is_summary(content: object) -> bool:
    """Whether every part that is read again is what it should be, or not known; others may be anything."""
    if not isinstance(content, dict):
        return False
    return all(fits(content.get(name), kind | None) for name, kind in TYPES.items())
