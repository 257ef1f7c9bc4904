"""A run directory loses nothing, mixes nothing, and is written by one process at a time."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lidfl import Experiment, LidflError, RunDirectory, run
from lidfl.runs.directory import finished_runs, unfinished_runs
from lidfl.runs.loop import Progress
from tests.command import lines_without_times


@pytest.fixture
def four_rounds(tmp_path: Path) -> Experiment:
    """A run that is finished."""
    experiment = Experiment(rounds=4, engine="linear", out=str(tmp_path / "run"))
    run(experiment)
    return experiment


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_never_lost_or_mixed_by_accident(four_rounds: Experiment, tmp_path: Path) -> None:
    with pytest.raises(LidflError, match="resume=True, start anew with overwrite=True, or set out=…"):
        run(four_rounds)
    with pytest.raises(LidflError, match="was run with seed = 2024, not 1"):
        run(four_rounds.with_settings(seed=1), resume=True)
    with pytest.raises(LidflError, match="can only have more"):
        run(four_rounds.with_settings(rounds=3), resume=True)
    with pytest.raises(LidflError, match="choose one"):
        run(four_rounds, resume=True, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    for resume, overwrite in ((False, True), (True, False), (False, False)):
        with pytest.raises(LidflError, match="not a run of lidfl"):
            run(four_rounds.with_settings(out=str(tmp_path / "mine")), resume=resume, overwrite=overwrite)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_that_is_being_written_is_not_touched(four_rounds: Experiment, resume: bool) -> None:
    """Not even its settings: they were written before the lock was asked for."""
    directory = RunDirectory(four_rounds.out)
    other = four_rounds.with_settings(rounds=9000, name="other")
    with directory.claimed(four_rounds, resume=True):
        before = contents(directory.path)
        with pytest.raises(LidflError, match="written by another process"):
            run(other, resume=resume, overwrite=not resume)
        assert contents(directory.path) == before


def test_what_is_overwritten_is_gone_and_what_is_new_is_a_whole_run(four_rounds: Experiment) -> None:
    folder = Path(four_rounds.out)
    (folder / "report").mkdir()
    (folder / "report" / "page.html").write_text("of the run before")
    run(four_rounds.with_settings(rounds=2, seed=5), overwrite=True)
    assert not (folder / "report").exists()
    assert RunDirectory(folder).experiment().seed == 5
    assert len(lines_without_times(folder)) == 2


def test_a_run_that_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(LidflError):
        run(Experiment(num_clients=100_000, out=str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_a_run_that_crashed_before_its_first_file_starts_afresh(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "experiment.toml.partial").write_text("dataset = ")
    summary = run(Experiment(rounds=2, out=str(tmp_path / "run")), resume=True)
    assert summary["rounds"] == 2


def test_a_damaged_checkpoint_is_one_clear_line(four_rounds: Experiment) -> None:
    RunDirectory(four_rounds.out).checkpoint_file.write_bytes(b"not a checkpoint")
    with pytest.raises(LidflError, match="cannot read the list"):
        run(four_rounds, resume=True)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"\xff\xfe", b"{"])
def test_a_damaged_result_is_one_line_that_names_the_way_out(four_rounds: Experiment, content: bytes) -> None:
    (Path(four_rounds.out) / "summary.json").write_bytes(content)
    with pytest.raises(LidflError, match=r"summary\.json.*lidfl run --config .* --resume"):
        RunDirectory(four_rounds.out).summary()
    run(four_rounds, resume=True)
    assert RunDirectory(four_rounds.out).summary()["rounds"] == 4


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x02" + b"\0" * 7 + b"{}"])
def test_damaged_inputs_are_one_line_that_names_the_way_out(four_rounds: Experiment, content: bytes) -> None:
    (Path(four_rounds.out) / "statistics.safetensors").write_bytes(content)
    with pytest.raises(LidflError, match=r"statistics\.safetensors.*--resume"):
        RunDirectory(four_rounds.out).inputs()


def test_reading_a_run_imports_nothing_that_it_names(
    four_rounds: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'struck')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Path(four_rounds.out) / "experiment.toml"
    settings.write_text(
        settings.read_text().replace('model = "lr"', 'model = "evil:f"').replace('"sign_flip"', '"nobody_knows"')
    )
    found = RunDirectory(four_rounds.out).experiment()
    assert (found.model, found.attack) == ("evil:f", "nobody_knows")
    assert not (tmp_path / "struck").exists()


def test_runs_without_a_result_are_told_from_those_with_one(four_rounds: Experiment, tmp_path: Path) -> None:
    begun = RunDirectory(tmp_path / "begun")
    with begun.claimed(four_rounds):
        pass
    assert [directory.path for directory in finished_runs(tmp_path)] == [tmp_path / "run"]
    assert [directory.path for directory in unfinished_runs(tmp_path)] == [tmp_path / "begun"]


@pytest.mark.parametrize("writes", [0, 1, 2, 4, 6, 8, 10])
def test_a_full_disk_is_one_line_and_costs_nothing_that_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    alone, full = (Experiment(rounds=6, checkpoint_every=2, out=str(tmp_path / name)) for name in ("alone", "full"))
    run(alone)
    left = iter([True] * writes)
    usual = os.fsync

    def fill_up(handle: int) -> None:
        if not next(left, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(handle)

    monkeypatch.setattr(os, "fsync", fill_up)
    with pytest.raises(LidflError, match=r"cannot write to .*full: No space left on device; .*(--resume|set out=)"):
        run(full)
    monkeypatch.setattr(os, "fsync", usual)
    assert not list(Path(full.out).rglob("*.partial")), "half a file would fill the disk further"
    run(full, resume=Path(full.out).exists())
    assert (Path(full.out) / "models.safetensors").read_bytes() == (
        Path(alone.out) / "models.safetensors"
    ).read_bytes()


def test_a_directory_that_is_deleted_meanwhile_is_one_line(tmp_path: Path) -> None:
    def delete(progress: Progress) -> None:
        if progress.record.number == 3:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(LidflError, match=r"cannot write to .*run: No such file or directory; .* deleted or moved"):
        run(Experiment(rounds=6, checkpoint_every=2, out=str(tmp_path / "run")), observe=delete)


def test_a_file_in_the_place_of_a_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("precious")
    ways: list[dict[str, Any]] = [{}, {"resume": True}, {"overwrite": True}]
    for how in ways:
        with pytest.raises(LidflError, match=r"cannot write to .*run: Not a directory; set out="):
            run(Experiment(rounds=1, out=str(tmp_path / "run")), **how)
    assert (tmp_path / "run").read_text() == "precious"
