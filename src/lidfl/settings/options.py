"""A setting of a dataclass that is also a flag: its help, and what it means to leave it out."""

from dataclasses import field
from typing import Any


def option(help_text: str, default: Any = None, *, paper: Any = None, unset: str = "", formerly: str = "") -> Any:
    """A setting with its help; a default of None is filled in from other settings.

    `paper` is the value that does not count in a run's name: options may be added, and names stay. `unset` tells
    what happens without the flag. `formerly` is the name that the setting had before: names of runs keep it.
    """
    neutral = default if paper is None else paper
    return field(
        default=default, metadata={"help": help_text, "neutral": neutral, "unset": unset, "formerly": formerly}
    )
