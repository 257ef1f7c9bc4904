"""Whether a run may be resumed with some settings: what is done must be what they say; and how to go on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lidfl.errors import LidflError
from lidfl.plugins import what_changed
from lidfl.settings.experiment import Experiment

EXPERIMENT = "experiment.toml"
"""The file of a run that holds its settings."""
MAY_DIFFER = {"name", "out", "rounds", "device", "plugin"}
"""Settings that a resumed run may change: none of them alters a round that is already done.

Of plugins the content counts, not where they are.
"""


def check_same(path: Path, before: Experiment, now: Experiment) -> None:
    """Refuse to go on with other settings, or with other code, than a run was begun with."""
    other = what_changed(before.plugin, now.plugin)
    if other:
        raise LidflError(
            f"{other} since {path} was begun; resume with the same file, or set out=… to start another run"
        )
    for name in before.differences(now):
        if name not in MAY_DIFFER:
            raise LidflError(
                f"{path} was run with {name} = {getattr(before, name)!r}, not {getattr(now, name)!r}; "
                "resume with the same settings, or set out=… to start another run"
            )
    if now.rounds < before.rounds:
        raise LidflError(f"{path} was run with {before.rounds} rounds; a resumed run can only have more")


def resume_command(path: Path) -> str:
    """What to type to go on with a run."""
    return f"lidfl run --config {path / EXPERIMENT} --resume"


@contextmanager
def telling_of_the_disk(path: Path) -> Iterator[None]:
    """A disk that is full, or a directory that somebody deleted: one line, and how to go on."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        saved = f"what was saved is kept; mend that, then go on: {resume_command(path)}"
        gone = "the directory was deleted or moved while the run went on; start it again"
        way_out = saved if (path / EXPERIMENT).exists() else gone
        raise LidflError(f"cannot write to {path}: {error.strerror}; {way_out}") from None
