"""Sweeps expand as one would by hand, lose nothing, and go on whatever fails."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lidfl import Experiment, LidflError, run
from lidfl.runs.loop import Progress
from lidfl.studies.running import estimate, run_all
from lidfl.studies.sweep import Sweep, directory_name, read_sweep
from tests.command import heed_ctrl_c, lidfl, lidfl_here, lidfl_inside, lines_without_times, wait_until

FILE = """
rounds = 6
local_steps = 2
attack = ["sign_flip", "lie"]
seed = [1, 2]

[groups.lists]
method = "lidfl"
proposal = ["client", "rknn"]

[groups.baseline]
method = "fedavg"
rounds = 4
"""


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


def test_every_combination_of_the_lists_is_a_run(tmp_path: Path) -> None:
    runs = read_sweep(written(tmp_path)).runs
    found = [(e.name, e.method_label, e.attack, e.seed, e.rounds) for e in runs]
    lists = [
        ("lists", label, attack, seed, 6)
        for attack in ("sign_flip", "lie")
        for seed in (1, 2)
        for label in ("lidfl", "lidfl+rknn")
    ]
    baseline = [("baseline", "fedavg", attack, seed, 4) for attack in ("sign_flip", "lie") for seed in (1, 2)]
    assert found == lists + baseline


def test_strict_refuses_before_anything_runs_what_would_only_be_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, 'rounds = 1\nmethod = ["fedavg", "trimmed_mean"]\nbyzantine_fraction = 0.6')
    assert lidfl_here("sweep", "small.toml", "--strict") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("(refused by --strict)")
    assert not (tmp_path / "runs").exists()


def test_a_file_without_groups_is_one_group_named_after_it(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path, "seed = [1, 2, 3]"))
    assert [e.name for e in sweep.runs] == ["small"] * 3
    assert all(Path(e.out).parent == Path("runs/small") for e in sweep.runs)


def test_the_same_settings_always_map_to_the_same_directory() -> None:
    first = Experiment(seed=3, name="a", out="x", checkpoint_every=5)
    same = Experiment(seed=3, name="b", out="y", device="cpu", engine="loop")
    assert directory_name(first) == directory_name(same)
    others = [Experiment(seed=4), Experiment(seed=3, rounds=7), Experiment(seed=3, attack="lie:z=2")]
    assert len({directory_name(e) for e in [first, *others]}) == 4


def test_a_run_that_two_groups_share_is_played_once(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path, "rounds = 3\n[groups.a]\nseed = [1, 2]\n[groups.b]\nseed = [2, 3]"))
    assert [e.seed for e in sweep.runs] == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rouns = [1]", "did you mean 'rounds'"),
        ("attack = ['lie', 'lye']", "unknown attack 'lye'"),
        ("groups = 3", r"groups are tables, such as \[groups\.lidfl\]"),
    ],
)
def test_a_slip_in_the_file_is_named_before_anything_runs(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LidflError, match=message):
        read_sweep(written(tmp_path, text))


def small_sweep(folder: Path, text: str = FILE) -> Sweep:
    return read_sweep(written(folder, text), folder / "runs")


def test_runs_in_parallel_give_what_each_gives_alone(tmp_path: Path) -> None:
    sweep = small_sweep(tmp_path, "rounds = 5\nseed = [1, 2, 3]")
    assert {ended.error for ended in run_all(sweep, workers=2)} == {None}
    for experiment in sweep.runs:
        alone = experiment.with_settings(out=str(tmp_path / f"alone-{experiment.seed}"))
        run(alone)
        assert lines_without_times(Path(alone.out)) == lines_without_times(Path(experiment.out))


def test_finished_runs_are_skipped_and_interrupted_ones_resumed(tmp_path: Path) -> None:
    sweep = small_sweep(tmp_path, "rounds = 8\ncheckpoint_every = 2\nseed = [1, 2]")
    finished, interrupted = sweep.runs
    run(finished)
    stamp = (Path(finished.out) / "summary.json").stat().st_mtime_ns

    class Stop(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.record.round_index == 5:
            raise Stop

    with pytest.raises(Stop):
        run(interrupted, observe=stop)
    done_before = (Path(interrupted.out) / "rounds.jsonl").read_text().splitlines()[0]
    assert [Path(ended.experiment.out) for ended in run_all(sweep, workers=1)] == [Path(interrupted.out)]
    assert (Path(finished.out) / "summary.json").stat().st_mtime_ns == stamp
    assert (Path(interrupted.out) / "rounds.jsonl").read_text().splitlines()[0] == done_before
    assert sweep.waiting == []


@pytest.mark.parametrize(("backend", "module"), [("ray", "ray"), ("dask", "distributed")])
def test_a_cluster_of_two_workers_gives_the_same_runs(tmp_path: Path, backend: str, module: str) -> None:
    pytest.importorskip(module, reason=f"needs lidfl[{backend}]")
    written(tmp_path, "rounds = 5\nseed = [1, 2, 3]")
    lidfl("sweep", "small.toml", "--backend", backend, "--workers", 2, "--out", "cluster", cwd=tmp_path)
    lidfl("sweep", "small.toml", "--out", "local", cwd=tmp_path)
    directories = sorted(path.name for path in (tmp_path / "local").iterdir())
    assert sorted(path.name for path in (tmp_path / "cluster").iterdir()) == directories
    for name in directories:
        assert lines_without_times(tmp_path / "cluster" / name) == lines_without_times(tmp_path / "local" / name)


def test_ctrl_c_stops_all_workers_and_the_next_call_goes_on(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text("rounds = 150\ncheckpoint_every = 10\nseed = [1, 2, 3]\n")
    command = [sys.executable, "-m", "lidfl", "sweep", "small.toml", "--workers", "2"]
    pipes: Any = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with subprocess.Popen(
        command, cwd=tmp_path, start_new_session=True, preexec_fn=heed_ctrl_c, **pipes
    ) as process:
        wait_until(lambda: bool(list(tmp_path.glob("runs/small/*/rounds.jsonl"))), "no run has begun")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on with the others" in out
    assert "Traceback" not in err
    for _ in range(200):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("a worker was left behind")
    lidfl_inside("sweep", "small.toml", cwd=tmp_path)
    finished = list(tmp_path.glob("runs/small/*/summary.json"))
    assert len(finished) == 3
    alone = read_sweep(tmp_path / "small.toml").runs[0].with_settings(out=str(tmp_path / "alone"))
    run(alone)
    resumed = tmp_path / "runs" / "small" / directory_name(alone)
    assert lines_without_times(resumed) == lines_without_times(Path(alone.out))


def test_a_failing_run_is_listed_and_the_others_go_on(tmp_path: Path) -> None:
    written(tmp_path, "rounds = 2\nnum_clients = [10, 100000, 12]")
    out, err = lidfl_inside("sweep", "small.toml", "--workers", 2, cwd=tmp_path, expect=2)
    assert "1 of 3 runs failed; the next call tries them again" in err
    assert "100000" in out
    assert len(list((tmp_path / "runs" / "small").rglob("summary.json"))) == 2


def test_a_killed_worker_is_one_clear_line_and_the_next_call_goes_on(tmp_path: Path) -> None:
    model = "import os, signal\nfrom torch import nn\ndef model():\n"
    model += "    if not os.path.exists('enough'): os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does\n"
    model += "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    (tmp_path / "greedy.py").write_text(model)
    written(tmp_path, 'rounds = 2\nmodel = ["lr", "greedy:model"]\n')
    _, err = lidfl("sweep", "small.toml", "--workers", 2, cwd=tmp_path, expect=2)
    assert err.startswith("lidfl: a worker process was killed")
    assert "Traceback" not in err
    (tmp_path / "enough").touch()
    lidfl("sweep", "small.toml", "--workers", 2, cwd=tmp_path)
    assert len(list((tmp_path / "runs" / "small").rglob("summary.json"))) == 2


def test_a_dry_run_counts_and_estimates_and_writes_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    out, _ = lidfl_inside("sweep", "small.toml", "--dry-run", cwd=tmp_path)
    assert "12 runs, 12 to do" in out
    assert "lidfl+rknn" in out
    assert not (tmp_path / "runs").exists()
    kinds = list(estimate(small_sweep(tmp_path), rounds=1))
    assert [kind.runs for kind in kinds] == [2] * 6
    assert all(kind.seconds > 0 for kind in kinds)


def test_the_table_of_a_sweep_is_the_mean_and_deviation_over_its_seeds(tmp_path: Path) -> None:
    written(tmp_path, "rounds = 4\nlocal_steps = 2\nseed = [1, 2]\nattack = ['none', 'gauss']")
    lidfl_inside("sweep", "small.toml", cwd=tmp_path)
    summaries = [json.loads(p.read_text()) for p in (tmp_path / "runs").rglob("summary.json")]
    out, _ = lidfl_inside("table", "runs/small", "--format", "csv", cwd=tmp_path)
    rows = {cells[1]: cells for cells in (line.split(",") for line in out.splitlines()[1:])}
    for attack in ("none", "gauss"):
        values = [s["deployed_accuracy"] for s in summaries if s["experiment"]["attack"] == attack]
        assert float(rows[attack][2]) == pytest.approx(sum(values) / 2)
        assert float(rows[attack][3]) == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
        assert rows[attack][4] == "2"
        best = [s["test_accuracy"] for s in summaries if s["experiment"]["attack"] == attack]
        assert float(rows[attack][5]) == pytest.approx(sum(best) / 2), "the paper's measure stands beside it"


def test_workers_that_an_earlier_sweep_left_elsewhere_read_and_write_where_they_are_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """joblib keeps its workers, and they keep the directory in which they were started."""
    for place in ("one", "other"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        monkeypatch.syspath_prepend(tmp_path / place)  # as the command does
        net = "from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
        Path(f"own_{place}.py").write_text(net)
        Path("s.toml").write_text(f'rounds = 1\nattack = ["lie", "gauss"]\nmodel = "own_{place}:net"\n')
        assert all(ended.error is None for ended in run_all(read_sweep(Path("s.toml")), workers=2))
        assert len(list((tmp_path / place / "runs").rglob("summary.json"))) == 2
