"""Runs that were never played: directories with such records and results as a test wants."""

import json
from pathlib import Path
from typing import Any

from lidfl import Experiment
from lidfl.protocol import Birth
from lidfl.runs.record import RoundRecord


def round_record(round_index: int = 0, **told: Any) -> RoundRecord:
    """A record in which nothing happened but what is told."""
    nothing: dict[str, Any] = dict(born=(), votes={}, removed=(), rejected={}, seconds=0.5)
    return RoundRecord(round_index=round_index, **nothing | told)


def birth(model: int, *parents: int, clients: tuple[int, ...] = (0,)) -> Birth:
    """A new model."""
    return Birth(model, parents, clients)


def write_records(path: Path, records: list[RoundRecord]) -> None:
    """Write records as a run does."""
    path.write_text("".join(json.dumps(record.to_json()) + "\n" for record in records))


def finished_run(experiment: Experiment, accuracy: float, **more: float) -> None:
    """What a finished run leaves, as far as tables read it; round r has an accuracy of r/1000."""
    folder = Path(experiment.out)
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(experiment.to_toml())
    (folder / "summary.json").write_text(
        json.dumps({"test_accuracy": accuracy, "deployed_accuracy": accuracy, **more})
    )
    records = [round_record(r, accuracy={0: r / 1000, 1: 0.0}) for r in range(150)]
    write_records(folder / "rounds.jsonl", records)
