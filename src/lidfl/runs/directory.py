"""The directory of a run: what is in it, and who may write to it.

| file | what it holds |
|---|---|
| `experiment.toml` | the settings, every one of them |
| `rounds.jsonl` | a line a round |
| `checkpoint.safetensors` | the list between two rounds, to resume from |
| `checkpoints/` | the last few of them, by rounds done, to return to |
| `statistics.safetensors` | mean and standard deviation by which images are standardised, and their shape |
| `models.safetensors` | the final list |
| `summary.json` | the result |
| `clients.json` | of a simulation: what each client holds and deploys |
| `secret` | what a real server draws from; a simulation draws from its seed |

Reading a run never imports or runs what its files name.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from secrets import randbits

from safetensors import SafetensorError

from lidfl.data.shards import FederatedData, Statistics
from lidfl.errors import LidflError
from lidfl.files import find_files, parse_json, read_toml, tensor_file_notes, write_atomically
from lidfl.lazily import tensor_files
from lidfl.runs.inputs import Inputs as Inputs
from lidfl.runs.record import RoundRecord, read_records
from lidfl.runs.results import Summary as Summary
from lidfl.runs.results import is_summary
from lidfl.runs.resuming import EXPERIMENT, check_same, resume_command, telling_of_the_disk
from lidfl.runs.state import State, load_state, rounds_done_in, save_state
from lidfl.settings.experiment import Experiment

ROUNDS = "rounds.jsonl"
CHECKPOINT = "checkpoint.safetensors"
INPUTS = "statistics.safetensors"
MODELS = "models.safetensors"
SUMMARY = "summary.json"
SECRET = "secret"
CHECKPOINTS = "checkpoints"
KEPT = 5
"""So many checkpoints can be returned to."""


class RunDirectory:
    """A run on disk."""

    def __init__(self, path: Path | str) -> None:
        if not isinstance(path, str | os.PathLike):
            raise LidflError(f'a run is named by its directory, such as "runs/first", not by {path!r}')
        self.path = Path(path)

    # What is there

    @property
    def rounds_file(self) -> Path:
        """The records, a line a round."""
        return self.path / ROUNDS

    @property
    def checkpoint_file(self) -> Path:
        """The state between two rounds."""
        return self.path / CHECKPOINT

    @property
    def is_run(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / EXPERIMENT).exists()

    @property
    def is_finished(self) -> bool:
        """Whether the run has its result."""
        return (self.path / SUMMARY).exists()

    def experiment(self) -> Experiment:
        """The settings of the run that is here, as they were recorded."""
        if not self.is_run:
            raise LidflError(f"{self.path} is not a run of lidfl: it has no {EXPERIMENT}")
        return Experiment.recorded(read_toml(self.path / EXPERIMENT) | {"out": str(self.path)})

    def engine(self) -> str:
        """The engine that the run has used so far."""
        return self.experiment().engine if self.is_run else "auto"

    def records(self) -> Iterator[RoundRecord]:
        """The rounds, one by one, but for a last one that is still being written."""
        return read_records(self.rounds_file)

    def rounds_done(self) -> int:
        """How many rounds are saved."""
        return rounds_done_in(self.checkpoint_file) if self.checkpoint_file.exists() else 0

    def checkpoint(self, device: str = "cpu") -> State:
        """The last saved state."""
        return load_state(self.checkpoint_file, device)

    def final_state(self, device: str = "cpu") -> State:
        """The final list of a finished run."""
        if not (self.path / MODELS).exists():
            raise LidflError(f"{self.path} has no final list; finish it: {resume_command(self.path)}")
        return load_state(self.path / MODELS, device)

    def summary(self) -> Summary:
        """The result of a finished run."""
        try:
            summary = parse_json((self.path / SUMMARY).read_bytes())
        except (OSError, ValueError) as error:
            raise LidflError(f"cannot read {self.path / SUMMARY}: {error}; {_again(self.path)}") from None
        if not is_summary(summary):
            raise LidflError(f"{self.path / SUMMARY} is not the result of a run; {_again(self.path)}")
        result: Summary = summary
        return result

    def inputs(self) -> Inputs:
        """The images and classes that the run's models are for."""
        path = self.path / INPUTS
        if not path.exists():
            raise LidflError(f"{self.path} is the run of an app with data of its own; give its folder as app=…")
        try:
            content = path.read_bytes()
            told, tensors = parse_json(tensor_file_notes(BytesIO(content))["task"]), tensor_files.load(content)
            channels, height, width = told["image_shape"]
            statistics = Statistics(tensors["mean"], tensors["std"])
            return Inputs((channels, height, width), told["num_classes"], statistics).checked()
        except (SafetensorError, OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
            raise LidflError(f"cannot read {path}: {error}; {_again(self.path)}") from None

    # Who may write

    def check(self, experiment: Experiment, *, resume: bool, overwrite: bool) -> None:
        """Refuse what would lose or mix runs, and say how to go on; nothing is written yet."""
        if resume and overwrite:
            raise LidflError("resume=True keeps what is there and overwrite=True deletes it: choose one")
        if self._is_empty():
            return
        if not self.is_run:
            raise LidflError(f"{self.path} is not a run of lidfl and is left alone; set out=… to another directory")
        if resume:
            check_same(self.path, self.experiment(), experiment)
        elif not overwrite:
            raise LidflError(
                f"{self.path} exists; go on with resume=True, start anew with overwrite=True, or set out=…"
            )

    def _is_empty(self) -> bool:
        """Whether nothing is there, or only what a crash left of the very first file."""
        try:
            return not self.path.exists() or all(path.suffix == ".partial" for path in self.path.iterdir())
        except OSError as error:
            raise self._unwritable(error) from None

    @contextmanager
    def claimed(self, experiment: Experiment, *, resume: bool = False, overwrite: bool = False) -> Iterator[None]:
        """Make the directory ready for a run, which no other process writes to until the context ends.

        Nothing is written before the lock is held, and what stood there is looked at again once it is.
        """
        self.check(experiment, resume=resume, overwrite=overwrite)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            self._lock(handle)
            self.check(experiment, resume=resume, overwrite=overwrite)
            self._prepare(experiment, overwrite=overwrite)
            with telling_of_the_disk(self.path):
                yield
        finally:
            os.close(handle)  # which ends the lock, as the end of this process would

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LidflError(
                f"{self.path} is being written by another process; wait for it, or set out=…"
            ) from None

    def _prepare(self, experiment: Experiment, *, overwrite: bool) -> None:
        """Empty the directory if it is to be, but keep it, since the lock is on it; write the settings."""
        try:
            for path in list(self.path.iterdir()) if overwrite else []:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            write_atomically(self.path / EXPERIMENT, experiment.to_toml().encode())
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> LidflError:
        return LidflError(f"cannot write to {self.path}: {error.strerror}; set out=…")

    # What a run writes

    def save(self, state: State) -> None:
        """Checkpoint a state, and keep the last few before it."""
        save_state(self.checkpoint_file, state)
        kept = self._kept(state.rounds_done)
        kept.parent.mkdir(exist_ok=True)
        kept.unlink(missing_ok=True)
        os.link(self.checkpoint_file, kept)  # the file itself is replaced, never changed
        for old in sorted(kept.parent.iterdir())[:-KEPT]:
            old.unlink()

    def _kept(self, rounds_done: int) -> Path:
        return self.path / CHECKPOINTS / f"{rounds_done:09d}.safetensors"

    def rewind(self, rounds_done: int) -> None:
        """Go back to the state after so many rounds; what came later is forgotten."""
        kept = sorted((self.path / CHECKPOINTS).glob("*.safetensors"))
        if self._kept(rounds_done) not in kept:
            known = ", ".join(str(int(path.stem)) for path in kept) or "none"
            raise LidflError(f"no state after round {rounds_done} is kept in {self.path}; there are: {known}")
        write_atomically(self.checkpoint_file, self._kept(rounds_done).read_bytes())
        for later in kept[kept.index(self._kept(rounds_done)) + 1 :]:
            later.unlink()
        self.unfinish()

    def restore(self, device: str) -> State | None:
        """The last checkpoint, with the records cut back to it; None if there is none."""
        if not self.checkpoint_file.exists():
            self.rounds_file.unlink(missing_ok=True)
            return None
        state = self.checkpoint(device)
        lines = self.rounds_file.read_bytes().splitlines(keepends=True) if state.rounds_done else []
        if len(lines) < state.rounds_done:
            raise LidflError(f"{self.rounds_file} is shorter than its checkpoint; start anew with overwrite=True")
        write_atomically(self.rounds_file, b"".join(lines[: state.rounds_done]))
        return state

    def save_inputs(self, data: FederatedData) -> None:
        """Keep what a client needs to judge the models with its own data, without the data set of the run."""
        tensors = {"mean": data.statistics.mean.contiguous(), "std": data.statistics.std.contiguous()}
        told = {"image_shape": data.image_shape, "num_classes": data.num_classes}
        write_atomically(self.path / INPUTS, tensor_files.save(tensors, {"task": json.dumps(told)}))

    def secret(self) -> int:
        """What a server draws from, made up once; nobody but the server's own user can read it."""
        path = self.path / SECRET
        if not path.exists():
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(f"{randbits(128)}\n")
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            raise LidflError(f"{path} does not hold the server's secret; start anew with overwrite=True") from None

    def unfinish(self) -> None:
        """Take the result back, before a run goes on."""
        (self.path / SUMMARY).unlink(missing_ok=True)

    def finish(self, state: State, summary: Summary) -> None:
        """Write the final list and the result; the checkpoint stays, so that a run can be made longer."""
        self.save(state)
        save_state(self.path / MODELS, state)
        write_atomically(self.path / SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())


def finished_runs(folder: Path) -> list[RunDirectory]:
    """The runs below a folder, or the run that the folder is, that have a result."""
    return [RunDirectory(path.parent) for path in find_files(folder, SUMMARY)]


def unfinished_runs(folder: Path) -> list[RunDirectory]:
    """The runs below a folder that were begun and have no result yet."""
    begun = [RunDirectory(path.parent) for path in find_files(folder, EXPERIMENT)]
    return [directory for directory in begun if not directory.is_finished]


def _again(path: Path) -> str:
    return f"write it anew: {resume_command(path)}"
