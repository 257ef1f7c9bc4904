"""A run that is killed, at any moment, and resumed equals one that was left alone."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lidfl import Experiment, LidflError, RunDirectory, run
from lidfl.checkpoint import State, load_state, save_state
from lidfl.protocol import ModelList
from lidfl.simulation import Progress
from tests.command import lidfl, lines_without_times, start

SETTINGS: list[str | int] = ["--rounds", 300, "--local-steps", 40, "--checkpoint-every", 7]
SETTINGS += ["--attack", "lie", "--vote-attack", "random"]


def assert_same_run(first: Path, second: Path) -> None:
    assert (first / "models.safetensors").read_bytes() == (second / "models.safetensors").read_bytes()
    assert lines_without_times(first) == lines_without_times(second)


def wait_for_round(checkpoint: Path, rounds: int) -> None:
    deadline = time.monotonic() + 60
    while not checkpoint.exists() or load_state(checkpoint).rounds_done < rounds:
        assert time.monotonic() < deadline, "the run makes no progress"
        time.sleep(0.005)


def test_killed_again_and_again_the_result_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    lidfl("run", *SETTINGS, "--out", "alone", cwd=tmp_path)
    for rounds in (1, 90, 200):
        process = start("run", *SETTINGS, "--out", "killed", "--resume", cwd=tmp_path)
        wait_for_round(tmp_path / "killed" / "checkpoint.safetensors", rounds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (tmp_path / "killed" / "summary.json").exists(), "the run was to be killed before its end"
    lidfl("run", *SETTINGS, "--out", "killed", "--resume", cwd=tmp_path)
    assert_same_run(tmp_path / "alone", tmp_path / "killed")


def test_ctrl_c_saves_the_state_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = start("run", *SETTINGS, "--checkpoint-every", "1000", "--out", "stopped", cwd=tmp_path)
    assert process.stdout is not None
    while "round 5/" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "lidfl run --config stopped/experiment.toml --resume" in out
    assert load_state(tmp_path / "stopped" / "checkpoint.safetensors").rounds_done >= 5
    lidfl("run", "--config", "stopped/experiment.toml", "--resume", cwd=tmp_path)
    lidfl("run", *SETTINGS, "--out", "alone", cwd=tmp_path)
    assert_same_run(tmp_path / "alone", tmp_path / "stopped")


REPLACE = """
import itertools, os
for name in itertools.cycle(("short", "long")):
    os.link(name, "link")
    os.replace("link", "state")
"""


def test_a_state_is_read_whole_while_a_run_replaces_it(tmp_path: Path) -> None:
    for name, rounds in (("short", 1), ("long", 2**20)):
        models = ModelList(torch.full((1, 5), float(rounds)), (0,), ((),), (0,), rounds)
        save_state(tmp_path / name, State(rounds, models))
    (tmp_path / "state").hardlink_to(tmp_path / "long")
    with subprocess.Popen([sys.executable, "-c", REPLACE], cwd=tmp_path) as writer:
        try:
            states = [load_state(tmp_path / "state") for _ in range(2000)]
        finally:
            writer.kill()
    assert {state.rounds_done for state in states} == {1, 2**20}
    assert all((state.models.parameters == state.rounds_done).all() for state in states)


class Stop(Exception):
    """Stands for a crash between two rounds."""


@pytest.mark.parametrize("method", ["fedavg", "lidfl"])
@pytest.mark.parametrize("stop_at", [1, 4, 5, 9])
def test_a_crash_after_any_round_loses_nothing_that_was_saved(tmp_path: Path, stop_at: int, method: str) -> None:
    def crash(progress: Progress) -> None:
        if progress.line["round"] + 1 == stop_at:
            raise Stop

    settings = dict(method=method, rounds=10, checkpoint_every=4, eval_every=3, attack="gauss")
    alone, crashed = (Experiment.of(settings | dict(out=str(tmp_path / name))) for name in ("alone", "crashed"))
    run(alone)
    with pytest.raises(Stop):
        run(crashed, observe=crash)
    run(crashed, resume=True)
    assert_same_run(Path(alone.out), Path(crashed.out))


def test_a_torn_last_line_is_dropped_on_resume(tmp_path: Path) -> None:
    experiment = Experiment(rounds=6, checkpoint_every=3, out=str(tmp_path / "run"))
    run(experiment)
    before = lines_without_times(tmp_path / "run")
    with (tmp_path / "run" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 6, "vo')
    run(experiment, resume=True)
    assert lines_without_times(tmp_path / "run") == before


def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    short = Experiment(rounds=10, eval_every=5, out=str(tmp_path / "run"))
    long = short.with_settings(rounds=20)
    run(short)
    run(long, resume=True)
    other = long.with_settings(out=str(tmp_path / "other"))
    run(other)
    assert_same_run(Path(long.out), Path(other.out))


def test_a_run_is_never_lost_or_mixed_by_accident(tmp_path: Path) -> None:
    experiment = Experiment(rounds=4, out=str(tmp_path / "run"))
    run(experiment)
    with pytest.raises(LidflError, match="--resume, start anew with --overwrite, or set --out"):
        run(experiment)
    with pytest.raises(LidflError, match="was run with seed = 2024, not 1"):
        run(experiment.with_settings(seed=1), resume=True)
    with pytest.raises(LidflError, match="can only have more"):
        run(experiment.with_settings(rounds=3), resume=True)
    with pytest.raises(LidflError, match="choose one"):
        run(experiment, resume=True, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    for resume, overwrite in ((False, True), (True, False), (False, False)):
        with pytest.raises(LidflError, match="not a run of lidfl"):
            run(experiment.with_settings(out=str(tmp_path / "mine")), resume=resume, overwrite=overwrite)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"


def test_a_run_that_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(LidflError):
        run(Experiment(num_clients=100_000, out=str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_a_damaged_checkpoint_is_one_clear_line(tmp_path: Path) -> None:
    experiment = Experiment(rounds=4, out=str(tmp_path / "run"))
    run(experiment)
    RunDirectory(tmp_path / "run").checkpoint_file.write_bytes(b"not a checkpoint")
    with pytest.raises(LidflError, match="cannot read the list"):
        run(experiment, resume=True)


def test_a_single_model_that_diverges_stops_and_keeps_its_accuracy(tmp_path: Path) -> None:
    exploding = Experiment(method="fedavg", attack="none", learning_rate=1e38, rounds=50, out=str(tmp_path / "run"))
    summary = run(exploding)
    assert summary["diverged_at"] <= 5
    assert len(lines_without_times(tmp_path / "run")) == summary["diverged_at"]
    assert summary["rounds"] == 50
    assert 0 <= summary["test_accuracy"] <= 0.3
    healthy = run(exploding.with_settings(learning_rate=0.01, rounds=3, out=str(tmp_path / "healthy")))
    assert healthy["diverged_at"] is None


def test_a_run_that_crashed_before_its_first_file_starts_afresh(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "experiment.toml.partial").write_text("dataset = ")
    summary = run(Experiment(rounds=2, out=str(tmp_path / "run")), resume=True)
    assert summary["rounds"] == 2


@pytest.mark.parametrize("resume", [True, False])
def test_two_processes_never_write_the_same_run(tmp_path: Path, resume: bool) -> None:
    experiment = Experiment(rounds=2, out=str(tmp_path / "run"))
    run(experiment)
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    with RunDirectory(experiment.out).alone(), pytest.raises(LidflError, match="written by another process"):
        run(experiment.with_settings(rounds=4), resume=resume, overwrite=not resume)
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before
