"""The directory of a run: what is in it, and when it may be written to.

| file | what it holds |
|---|---|
| `experiment.toml` | the settings, every one of them |
| `rounds.jsonl` | a line a round |
| `checkpoint.safetensors` | the list between two rounds, to resume from |
| `statistics.safetensors` | mean and standard deviation by which images are standardised, and their shape |
| `models.safetensors` | the final list |
| `summary.json` | the result |
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save

from lidfl.checkpoint import State, load_state, save_state, write_atomically
from lidfl.config import Experiment
from lidfl.datasets.federated import FederatedData, Statistics
from lidfl.errors import LidflError

Line = dict[str, Any]
"""A line of rounds.jsonl."""

MAY_DIFFER = {"name", "out", "rounds", "device"}
"""Settings that a resumed run may change: none of them alters a round that is already done."""


@dataclass(frozen=True)
class Born:
    """A model that joined the list, as rounds.jsonl tells it."""

    model: int
    parents: tuple[int, ...]
    """The models that it was made from."""
    clients: tuple[int, ...]
    """Whose updates went into it."""
    honest: bool | None
    """Whether none of them is Byzantine; None if the server made it of other models."""


def births(line: Line) -> list[Born]:
    """The models that were born in a round; a line names one itself, or lists them under `born`."""
    if "born" in line:
        return [Born(b["model"], tuple(b["parents"]), tuple(b["clients"]), b.get("honest")) for b in line["born"]]
    if "model" not in line:
        return []
    client, parent = line["client"], line["parent"]
    clients = tuple(client) if isinstance(client, list) else (client,)
    return [Born(line["model"], (parent,) if parent >= 0 else (), clients, line.get("honest"))]


@dataclass(frozen=True)
class Task:
    """What a run's models are for."""

    image_shape: tuple[int, int, int]
    num_classes: int
    statistics: Statistics


class RunDirectory:
    """A run on disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def rounds_file(self) -> Path:
        """The records, a line a round."""
        return self.path / "rounds.jsonl"

    @property
    def checkpoint_file(self) -> Path:
        """The state between two rounds."""
        return self.path / "checkpoint.safetensors"

    @property
    def models_file(self) -> Path:
        """The final list."""
        return self.path / "models.safetensors"

    def check(self, experiment: Experiment, *, resume: bool, overwrite: bool) -> None:
        """Refuse what would lose or mix runs, and say how to go on; nothing is written yet."""
        if resume and overwrite:
            raise LidflError("--resume keeps what is there and --overwrite deletes it: choose one")
        if not self.path.exists() or all(path.suffix == ".partial" for path in self.path.iterdir()):
            return  # nothing is there, or only what a crash left of the very first file
        if not (self.path / "experiment.toml").exists():
            raise LidflError(f"{self.path} is not a run of lidfl and is left alone; set --out to another directory")
        if resume:
            self._check_same(experiment)
        elif not overwrite:
            raise LidflError(f"{self.path} exists; go on with --resume, start anew with --overwrite, or set --out")

    def open(self, experiment: Experiment, *, overwrite: bool) -> None:
        """Make the directory ready for a run that has passed `check`."""
        try:
            if overwrite and self.path.exists():
                with self.alone():
                    shutil.rmtree(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / "experiment.toml", experiment.to_toml().encode())
        except OSError as error:
            raise LidflError(f"cannot write to {self.path}: {error.strerror}; set --out") from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other process from writing here for a while; the lock ends with this process at the latest."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            self._lock(handle)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LidflError(
                f"{self.path} is being written by another process; wait for it, or set --out"
            ) from None

    def _check_same(self, experiment: Experiment) -> None:
        before = self.experiment()
        changed = [name for name in before.differences(experiment) if name not in MAY_DIFFER]
        if changed:
            name = changed[0]
            raise LidflError(
                f"{self.path} was run with {name} = {getattr(before, name)!r}, not {getattr(experiment, name)!r}; "
                "resume with the same settings, or set --out to start another run"
            )
        if experiment.rounds < before.rounds:
            raise LidflError(f"{self.path} was run with {before.rounds} rounds; a resumed run can only have more")

    def experiment(self) -> Experiment:
        """The settings of the run that is here."""
        if not (self.path / "experiment.toml").exists():
            raise LidflError(f"{self.path} is not a run of lidfl: it has no experiment.toml")
        return Experiment.from_toml(self.path / "experiment.toml", out=str(self.path))

    def engine(self) -> str:
        """The engine that the run has used so far."""
        return self.experiment().engine if (self.path / "experiment.toml").exists() else "auto"

    def save(self, state: State) -> None:
        """Checkpoint a state."""
        save_state(self.checkpoint_file, state)

    def restore(self, device: str) -> State | None:
        """The last checkpoint, with the records cut back to it; None if there is none."""
        if not self.checkpoint_file.exists():
            self.rounds_file.unlink(missing_ok=True)
            return None
        state = load_state(self.checkpoint_file, device)
        lines = self.rounds_file.read_bytes().splitlines(keepends=True) if state.rounds_done else []
        if len(lines) < state.rounds_done:
            raise LidflError(f"{self.rounds_file} is shorter than its checkpoint; start anew with --overwrite")
        write_atomically(self.rounds_file, b"".join(lines[: state.rounds_done]))
        return state

    def lines(self) -> Iterator[Line]:
        """The records, one by one, but for a last one that is still being written."""
        with self.rounds_file.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)

    def finish(self, state: State, summary: dict[str, Any]) -> None:
        """Write the final list and the result; the checkpoint stays, so that a run can be made longer."""
        self.save(state)
        save_state(self.models_file, state)
        write_atomically(self.path / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())

    def summary(self) -> dict[str, Any]:
        """The result of a finished run."""
        summary: dict[str, Any] = json.loads((self.path / "summary.json").read_text(encoding="utf-8"))
        return summary

    def final_state(self, device: str = "cpu") -> State:
        """The final list of a finished run."""
        if not self.models_file.exists():
            raise LidflError(f"{self.path} has no final list; finish it: {resume_command(self.path)}")
        return load_state(self.models_file, device)

    def save_task(self, data: FederatedData) -> None:
        """Keep what a client needs to judge the models with its own data, without the data set of the run."""
        tensors = {"mean": data.statistics.mean.contiguous(), "std": data.statistics.std.contiguous()}
        task = {"image_shape": data.image_shape, "num_classes": data.num_classes}
        write_atomically(self.path / "statistics.safetensors", save(tensors, {"task": json.dumps(task)}))

    def task(self) -> Task:
        """The images and classes that the run's models are for."""
        if not (self.path / "statistics.safetensors").exists():
            raise LidflError(f"{self.path} is the run of an app with data of its own; give its folder as --app")
        with safe_open(self.path / "statistics.safetensors", framework="pt") as file:
            task = json.loads(file.metadata()["task"])
            statistics = Statistics(file.get_tensor("mean"), file.get_tensor("std"))
        channels, height, width = task["image_shape"]
        return Task((channels, height, width), task["num_classes"], statistics)


class Records:
    """Appends lines to rounds.jsonl."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def append(self, line: Line) -> None:
        """Add a line."""
        self._file.write(json.dumps(line, allow_nan=False) + "\n")

    def sync(self) -> None:
        """Force the lines to disk, before the checkpoint that counts on them."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def resume_command(path: Path) -> str:
    """What to type to go on with a run."""
    return f"lidfl run --config {path / 'experiment.toml'} --resume"
