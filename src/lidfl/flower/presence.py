"""How others see that a server is at work in a run directory.

The directory's own lock cannot tell them: to see whether it is taken they would have to take it, and a server that
starts at that moment would be refused.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lidfl.runs.directory import RunDirectory


@contextmanager
def at_work(directory: RunDirectory) -> Iterator[None]:
    """Let others see that this process is at work; they stop seeing it when the process ends, however it ends."""
    with _file(directory).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_at_work(directory: RunDirectory) -> bool:
    """Whether a server is at work in a directory."""
    if not _file(directory).exists():
        return False
    with _file(directory).open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _file(directory: RunDirectory) -> Path:
    return directory.path / "lock"
