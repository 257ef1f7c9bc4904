"""The runs below a folder, for those who named one that is not there. Nothing but names and times is read."""

from dataclasses import dataclass
from pathlib import Path

from lidfl.errors import LidflError
from lidfl.runs.directory import SUMMARY
from lidfl.runs.resuming import EXPERIMENT, resume_command

ENOUGH = 3
"""So many runs are named."""


@dataclass(frozen=True)
class Found:
    """A run that is there."""

    path: Path

    @property
    def is_finished(self) -> bool:
        """Whether it has its result."""
        return (self.path / SUMMARY).exists()

    @property
    def resume(self) -> str:
        """The command that goes on with it."""
        return resume_command(self.path)


def runs_nearby(folder: Path) -> list[Found]:
    """The runs in a folder and in its `runs`, the latest first."""
    found = [file for pattern in ("*", "runs/*") for file in folder.glob(f"{pattern}/{EXPERIMENT}")]
    return [Found(file.parent) for file in sorted(found, key=lambda file: -file.stat().st_mtime)]


def require_run(path: Path) -> None:
    """Refuse a place that is no run, and say where runs are or how one is made."""
    if not (path / EXPERIMENT).exists():
        raise LidflError(f"{path} is not a run of lidfl; {way_to_a_run(path)}")


def way_to_a_run(path: Path) -> str:
    """What to name or to type instead of a place that is no run."""
    found = [str(run.path) for run in (runs_nearby(path) if path.is_dir() else []) or runs_nearby(Path())]
    if found:
        more = f" and {len(found) - ENOUGH} more" if len(found) > ENOUGH else ""
        return f"there are {', '.join(found[:ENOUGH])}{more}" if len(found) > 1 else f"there is {found[0]}"
    place = "" if path.exists() else f" --out {path}"
    return f"there is none here yet; make one with: lidfl run{place}"
