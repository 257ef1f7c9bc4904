"""A run that is killed, at any moment, and resumed equals one that was left alone."""

import signal
from pathlib import Path

import pytest

from lidfl import Experiment, LidflError, run
from lidfl.methods.aggregators import aggregator
from lidfl.methods.method import METHODS
from lidfl.runs.loop import Progress
from lidfl.runs.record import RecordWriter, RoundRecord
from lidfl.runs.state import load_state, rounds_done_in
from tests.command import lidfl_inside, lines_without_times, start, wait_until

SETTINGS: list[str | int] = ["--rounds", 300, "--local-steps", 40, "--checkpoint-every", 7]
SETTINGS += ["--attack", "lie", "--vote-attack", "random"]


def assert_same_run(first: Path, second: Path) -> None:
    assert (first / "models.safetensors").read_bytes() == (second / "models.safetensors").read_bytes()
    assert lines_without_times(first) == lines_without_times(second)


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody interrupts."""
    folder = tmp_path_factory.mktemp("alone")
    lidfl_inside("run", *SETTINGS, "--out", "alone", cwd=folder)
    return folder / "alone"


def test_killed_again_and_again_the_result_is_the_same_bit_for_bit(tmp_path: Path, left_alone: Path) -> None:
    checkpoint = tmp_path / "killed" / "checkpoint.safetensors"
    for rounds in (1, 90, 200):
        process = start("run", *SETTINGS, "--out", "killed", "--resume", cwd=tmp_path)

        def come_so_far(rounds: int = rounds) -> bool:
            return checkpoint.exists() and rounds_done_in(checkpoint) >= rounds

        wait_until(come_so_far, "the run makes no progress")
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        assert not (tmp_path / "killed" / "summary.json").exists(), "the run was to be killed before its end"
    lidfl_inside("run", *SETTINGS, "--out", "killed", "--resume", cwd=tmp_path)
    assert_same_run(left_alone, tmp_path / "killed")


def test_ctrl_c_saves_the_state_and_says_how_to_go_on(tmp_path: Path, left_alone: Path) -> None:
    process = start("run", *SETTINGS, "--checkpoint-every", "1000", "--out", "stopped", cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:  # ends with the process, at the latest
        if "round 5/" in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "lidfl run --config stopped/experiment.toml --resume" in out
    assert load_state(tmp_path / "stopped" / "checkpoint.safetensors").rounds_done >= 5
    lidfl_inside("run", "--config", "stopped/experiment.toml", "--resume", cwd=tmp_path)
    assert_same_run(left_alone, tmp_path / "stopped")


class Stop(Exception):
    """Stands for a crash between two rounds."""


def crash_and_resume(experiment: Experiment, stop_at: int) -> None:
    """Run an experiment that crashes after a round, and resume it."""

    def crash(progress: Progress) -> None:
        if progress.record.number == stop_at:
            raise Stop

    with pytest.raises(Stop):
        run(experiment, observe=crash)
    run(experiment, resume=True)


@pytest.mark.parametrize("method", [*METHODS, *aggregator])
def test_whatever_the_method_a_crash_changes_no_record(tmp_path: Path, method: str) -> None:
    """Single models used to miss a loss in the first round after the checkpoint."""
    few = dict(rounds=10, local_steps=2, num_clients=8)  # so few that every subset can be searched
    settings = dict(method=method, checkpoint_every=4, eval_every=3, attack="gauss", **few)
    alone, crashed = (Experiment.of(settings | dict(out=str(tmp_path / name))) for name in ("alone", "crashed"))
    run(alone)
    crash_and_resume(crashed, stop_at=5)
    assert_same_run(Path(alone.out), Path(crashed.out))


@pytest.mark.parametrize("stop_at", [1, 4, 5, 9])
def test_a_crash_after_any_round_loses_nothing_that_was_saved(tmp_path: Path, stop_at: int) -> None:
    settings = dict(rounds=10, checkpoint_every=4, eval_every=3, attack="gauss")
    alone, crashed = (Experiment.of(settings | dict(out=str(tmp_path / name))) for name in ("alone", "crashed"))
    run(alone)
    crash_and_resume(crashed, stop_at)
    assert_same_run(Path(alone.out), Path(crashed.out))


@pytest.mark.parametrize("written", [True, False])
def test_ctrl_c_while_a_record_is_written_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    alone, stopped = (Experiment(rounds=10, out=str(tmp_path / name)) for name in ("alone", "stopped"))
    run(alone)
    usual = RecordWriter.append

    def interrupted(self: RecordWriter, record: RoundRecord) -> None:
        if written or record.number != 6:
            usual(self, record)
        if record.number == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(RecordWriter, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(stopped)
    monkeypatch.setattr(RecordWriter, "append", usual)
    run(stopped, resume=True)
    assert_same_run(Path(alone.out), Path(stopped.out))


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


def test_a_run_that_is_made_longer_is_unfinished_until_it_ends(tmp_path: Path) -> None:
    short = Experiment(rounds=4, out=str(tmp_path / "run"))
    run(short)
    there = []

    def look(_: Progress) -> None:
        there.append((tmp_path / "run" / "summary.json").exists())

    run(short.with_settings(rounds=6), resume=True, observe=look)
    assert there == [False, False]


def test_a_single_model_that_diverges_stops_and_keeps_its_accuracy(tmp_path: Path) -> None:
    exploding = Experiment(method="fedavg", attack="none", learning_rate=1e38, rounds=50, out=str(tmp_path / "run"))
    summary = run(exploding)
    assert summary["diverged_at"] <= 5
    assert len(lines_without_times(tmp_path / "run")) == summary["diverged_at"]
    assert summary["rounds"] == 50
    assert 0 <= summary["test_accuracy"] <= 0.3
    assert run(exploding, resume=True)["diverged_at"] == summary["diverged_at"], "resumed, it has still ended"
    healthy = run(exploding.with_settings(learning_rate=0.01, rounds=3, out=str(tmp_path / "healthy")))
    assert healthy["diverged_at"] is None


def test_a_round_without_a_vote_has_no_margin(tmp_path: Path) -> None:
    """It used to have the margin of an earlier round."""
    from lidfl import RunDirectory, attack

    @attack
    def sometimes_nan(own: object) -> object:  # an update that the server refuses
        """Send what is not a number."""
        return own * float("nan")  # type: ignore[operator]

    try:
        experiment = Experiment(attack="sometimes_nan", rounds=12, out=str(tmp_path / "run"))
        run(experiment)
    finally:
        del attack.functions["sometimes_nan"]
    records = list(RunDirectory(experiment.out).records())
    held = [bool(record.born) for record in records]
    assert set(held) == {True, False}
    assert [record.margin is not None for record in records] == held


def test_a_run_can_return_to_each_of_its_last_checkpoints(tmp_path: Path) -> None:
    experiment = Experiment(rounds=20, checkpoint_every=3, out=str(tmp_path / "run"))
    run(experiment)
    whole = (tmp_path / "run" / "models.safetensors").read_bytes(), lines_without_times(tmp_path / "run")
    for rounds in (18, 12, 9):
        run(experiment, resume=True, from_round=rounds)
        again = (tmp_path / "run" / "models.safetensors").read_bytes(), lines_without_times(tmp_path / "run")
        assert again == whole
    with pytest.raises(LidflError, match=r"no state after round 3 is kept in .*; there are: 9, 12, 15, 18, 20"):
        run(experiment, resume=True, from_round=3)


def test_clients_that_come_and_go_are_there_again_in_a_resumed_run(tmp_path: Path) -> None:
    settings = dict(rounds=12, checkpoint_every=4, availability=0.5, local_steps=2, num_clients=8)
    alone, crashed = (Experiment.of(settings | dict(out=str(tmp_path / name))) for name in ("alone", "crashed"))
    summary = run(alone)
    crash_and_resume(crashed, stop_at=7)
    assert_same_run(Path(alone.out), Path(crashed.out))
    assert summary["rounds_skipped"] > 0
    assert any(line.get("stood") for line in lines_without_times(Path(alone.out)))


@pytest.mark.parametrize("method", ["lidfl", "lidfl-ranked"])
@pytest.mark.parametrize("vote_attack", ["worst", "random", "coordinated"])
def test_rounds_in_which_no_honest_client_or_no_juror_is_there_are_played_or_skipped(
    method: str, vote_attack: str, tmp_path: Path
) -> None:
    settings = dict(method=method, vote_attack=vote_attack, rounds=15, availability=0.25, local_steps=2)
    summary = run(Experiment.of(settings | dict(num_clients=6, out=str(tmp_path / "run"))))
    assert [line["round"] for line in lines_without_times(tmp_path / "run")] == list(range(15))
    assert summary["rounds_skipped"] > 0 or method == "lidfl-ranked", "one worker is away more often than all are"


def test_a_run_that_nobody_answers_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lidfl.runs.loop.MOST_SKIPPED", 20)
    nobody = Experiment(
        rounds=2, availability=1e-9, absent="honest", byzantine_fraction=0.0, out=str(tmp_path / "run")
    )
    with pytest.raises(LidflError, match="round 1 was tried 20 times and too few clients answered"):
        run(nobody)
