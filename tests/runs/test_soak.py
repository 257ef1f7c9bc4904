"""A long run: memory does not grow with its rounds, and a record of very many is read and reported.

`python -m benchmarks.soak` does the same with 20,000 rounds that are played.
"""

import gc
import tracemalloc
from pathlib import Path

from lidfl import Experiment, run
from lidfl.report import write_report
from lidfl.runs.loop import Progress
from tests.records import birth, round_record, write_records

MANY = 20_000


def test_memory_does_not_grow_with_the_rounds(tmp_path: Path) -> None:
    held: dict[int, int] = {}

    def weigh(progress: Progress) -> None:
        if progress.record.number in (60, 180):
            gc.collect()
            held[progress.record.number] = tracemalloc.get_traced_memory()[0]

    brief = dict(rounds=180, local_steps=1, num_clients=5, checkpoint_every=20, out=str(tmp_path / "run"))
    tracemalloc.start()
    try:
        run(Experiment.of(brief), observe=weigh)
    finally:
        tracemalloc.stop()
    assert held[180] - held[60] < 120 * 500, "a round leaves less than 500 bytes behind"


def test_a_record_of_very_many_rounds_is_read_and_reported(tmp_path: Path) -> None:
    experiment = Experiment(rounds=MANY, num_clients=5, list_size=2, out=str(tmp_path))
    (tmp_path / "experiment.toml").write_text(experiment.to_toml())
    line = [
        round_record(
            r,
            born=(birth(r + 2, max(0, r + 1)),),
            honest={r + 2: True},
            votes={r: 0, r + 1: 3, r + 2: 2},
            removed=(r,),
            loss={r + 1: 0.5, r + 2: 1 / (r + 1)},
            accuracy={r + 1: 0.5, r + 2: 0.6} if r % 10 == 9 else {},
            margin=1,
            phases={"train": 0.25},
        )
        for r in range(MANY)
    ]
    write_records(tmp_path / "rounds.jsonl", line)
    page, *_ = write_report([tmp_path], out=tmp_path / "page.html")
    assert "20,000" in page.read_text()
    assert page.stat().st_size < 4_000_000, "what is drawn does not grow with the rounds"
