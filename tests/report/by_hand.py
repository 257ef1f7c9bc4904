"""A run of five rounds and a sweep of six runs, small enough to know by heart."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lidfl import Experiment, RunDirectory
from lidfl.protocol import Birth
from lidfl.report.figures.base import Figure
from lidfl.report.read import RunRecords
from lidfl.runs.directory import SUMMARY, Summary
from lidfl.runs.record import RecordWriter, RoundRecord
from lidfl.runs.resuming import EXPERIMENT
from lidfl.studies.store import Curve, Kept

PHASES = {"training": 0.1, "evaluation": 0.3, "voting": 0.05, "protocol": 0.05}


def record(number: int, birth: Birth, votes: dict[int, int], *, out: int, **more: Any) -> RoundRecord:
    """A round in which one client trained: 1 is honest, 9 is not. A model's loss is a tenth of its id, plus 1."""
    return RoundRecord(
        round_index=number - 1,
        born=(birth,),
        honest={birth.model: birth.clients == (1,)},
        votes=votes,
        loss={candidate: 1 + candidate / 10 for candidate in votes},
        removed=(out,),
        rejected={},
        seconds=0.5,
        phases=PHASES,
        **more,
    )


FIVE_ROUNDS = [
    record(1, Birth(2, (0,), (9,)), {0: 2, 1: 0, 2: 3}, out=1, margin=3),
    record(2, Birth(3, (2,), (1,)), {0: 2, 2: 3, 3: 0}, out=3),
    record(
        3,
        Birth(4, (0,), (1,)),
        {0: 1, 2: 3, 4: 1},
        out=0,
        margin=1,
        accuracy={2: 0.1, 4: 0.4},
        deployed_accuracy=0.5,
    ),
    record(4, Birth(5, (4,), (9,)), {2: 3, 4: 2, 5: 0}, out=5, margin=4),
    record(
        5,
        Birth(6, (4,), (1,)),
        {2: 3, 4: 0, 6: 2},
        out=4,
        margin=1,
        accuracy={2: 0.1, 6: 0.7},
        deployed_accuracy=0.8,
    ),
]
"""The initial models 0 and 1; 2 is poisoned and stays, 3 is its honest child, 5 is poisoned and voted out at birth;
the good line is 0, 4, 6. But model 2 has the lowest loss of the last list, unless told otherwise."""

GOOD_LINE = [
    replace(one, loss={model: 3.0 if model in (2, 3, 5) else loss for model, loss in one.loss.items()})
    for one in FIVE_ROUNDS
]
"""The same with the poisoned models' losses high, as they are."""

FIVE = Experiment(rounds=5, num_clients=5, eval_every=3, learning_rate=0.1)


def recorded(experiment: Experiment, **changes: Any) -> Experiment:
    """An experiment as a file may hold it: what it names need not exist."""
    return Experiment.recorded(asdict(experiment) | changes)


def put_run(
    place: Path,
    records: Sequence[RoundRecord],
    experiment: Experiment = FIVE,
    summary: Summary | None = None,
) -> Path:
    """A run directory with these records."""
    place.mkdir(parents=True)
    (place / EXPERIMENT).write_text(recorded(experiment, out=str(place)).to_toml())
    writer = RecordWriter(RunDirectory(place).rounds_file)
    for one in records:
        writer.append(one)
    writer.close()
    if summary:
        (place / SUMMARY).write_text(json.dumps(summary))
    return place


def run_of(records: Sequence[RoundRecord] = GOOD_LINE, experiment: Experiment = FIVE) -> RunRecords:
    """A run that is nowhere on disk."""
    return RunRecords(RunDirectory("somewhere"), experiment, records, None)


def played(method: str, seed: int, accuracy: float, curve: Curve | None = None, **settings: Any) -> Kept:
    """A run of a sweep: ten rounds, tested twice."""
    experiment = Experiment(**{"method": method, "seed": seed, "rounds": 10, **settings})
    curve = curve or [(5, accuracy / 2), (10, accuracy)]
    return Kept(experiment, {"deployed_accuracy": accuracy}, curve, {}, deployed=curve)


SWEEP = [
    played("lidfl", 1, 0.8, attack="lie"),
    played("lidfl", 2, 0.6, attack="lie"),
    played("fedavg", 1, 0.2, attack="lie"),
    played("fedavg", 2, 0.4, attack="lie"),
    played("lidfl", 1, 0.5, attack="gauss"),
    played("fedavg", 1, 0.9, attack="gauss"),
]


def put_results(path: Path, runs: Sequence[Kept] = SWEEP) -> Path:
    """A results file with these runs."""
    path.write_text(json.dumps({str(number): run.to_json() for number, run in enumerate(runs)}))
    return path


def drawn(figure: Figure | None) -> Figure:
    """A figure that there must be."""
    assert figure is not None
    return figure
