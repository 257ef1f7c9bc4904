"""What a report reads: records of every version, and nothing that is still being written."""

from dataclasses import replace
from pathlib import Path

import pytest

from lidfl import RunDirectory
from lidfl.protocol import Birth
from lidfl.report.read import RunRecords, read_folder, read_runs
from lidfl.runs.record import Json, RoundRecord
from tests.report.by_hand import FIVE_ROUNDS, SWEEP, put_results, put_run, run_of

REST: Json = {"round": 4, "votes": {}, "removed": [], "rejected": {}, "seconds": 0.1, "phases": {}}


def births(line: Json) -> tuple[tuple[Birth, ...], dict[int, bool | None]]:
    read = RoundRecord.from_json(REST | line)
    return read.born, dict(read.honest)


def test_both_forms_of_a_line_tell_who_was_born() -> None:
    one = {"model": 7, "client": 3, "parent": 2, "honest": True}
    assert births(one) == ((Birth(7, (2,), (3,)),), {7: True})
    assert births(one | {"client": [3, 4]}) == ((Birth(7, (2,), (3, 4)),), {7: True})
    assert births({}) == ((), {})
    mean = {"model": 8, "parents": [6, 7], "clients": [], "honest": None}
    trained = {"model": 7, "parents": [2], "clients": [3], "honest": False}
    both = Birth(7, (2,), (3,)), Birth(8, (6, 7), ())
    assert births({"born": [trained, mean]}) == (both, {7: False, 8: None})


def test_a_line_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", FIVE_ROUNDS)
    with RunDirectory(run).rounds_file.open("a") as file:
        file.write('{"round": 5, "mod')
    assert list(RunRecords.read(run).records) == FIVE_ROUNDS


def test_a_run_knows_its_tests_and_its_time() -> None:
    run = run_of(FIVE_ROUNDS)
    assert [record.number for record in run.tested] == [3, 5]
    assert run.rounds_done == 5
    assert run.seconds == pytest.approx(2.5)


def test_of_runs_that_differ_in_rounds_alone_a_results_file_gives_the_longest(tmp_path: Path) -> None:
    first, *others = SWEEP
    longer = first.experiment.with_settings(rounds=20)
    twice = put_results(tmp_path / "results.json", [first, replace(first, experiment=longer)])
    assert [run.experiment.rounds for run in read_runs(twice)] == [20]
    assert len(read_runs(put_results(tmp_path / "more.json", others))) == len(others)


def test_a_folder_gives_its_finished_runs_with_their_curves(tmp_path: Path) -> None:
    put_run(tmp_path / "a", FIVE_ROUNDS, summary={"test_accuracy": 0.7})
    put_run(tmp_path / "b", FIVE_ROUNDS[:2])
    (run,) = read_folder(tmp_path)
    assert run.curve == [(3, 0.4), (5, 0.7)]
    assert run.summary == {"test_accuracy": 0.7}
