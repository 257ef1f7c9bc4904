"""The server's app without processes: it equals the simulator, resumes, and keeps its directory to itself."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import Experiment, LidflError, RunDirectory, run
from lidfl.flower.local.audit import LocalAudit, open_audit
from lidfl.flower.presence import is_at_work
from lidfl.flower.server import Control, read_run_config, serve
from tests.command import lines_without_times
from tests.flower.nodes import ATTACKED, PLURALITY, RANKED, grid_of, six


@pytest.mark.parametrize("settings", [PLURALITY, RANKED, ATTACKED], ids=["plurality", "ranked", "ranked, attacked"])
def test_the_list_equals_the_simulators(tmp_path: Path, settings: dict[str, Any]) -> None:
    brief = settings | dict(local_steps=10)
    simulated, real = (six(**brief, out=str(tmp_path / name)) for name in ("sim", "real"))
    run(simulated)
    serve(real, Control(), grid_of(real, tmp_path / "data"), open_audit)
    ours, theirs = (RunDirectory(e.out).final_state().models for e in (simulated, real))
    difference = float((ours.parameters - theirs.parameters).abs().max())
    # Several jurors may propose the same model. The simulator sums losses in another order, so that such ties may
    # fall the other way, and a mean of the same models in another order has other last bits.
    assert difference == 0 if settings is PLURALITY else difference < 1e-6
    if settings is PLURALITY:
        assert (ours.ids, ours.parents, ours.ages) == (theirs.ids, theirs.parents, theirs.ages)
        for one, other in zip(*map(lines_without_times, (Path(simulated.out), Path(real.out))), strict=True):
            common = one.keys() & other.keys() - {"loss"}
            assert [one[key] for key in common] == [other[key] for key in common]


def test_a_run_goes_on_after_any_round_with_other_node_ids(tmp_path: Path) -> None:
    alone, stopped = (six(**PLURALITY, rounds=4, out=str(tmp_path / name)) for name in ("alone", "stopped"))
    serve(alone, Control(), grid_of(alone, tmp_path / "data"), open_audit)
    serve(stopped.with_settings(rounds=2), Control(), grid_of(stopped, tmp_path / "data"), open_audit)
    again = grid_of(stopped, tmp_path / "data")
    again.apps = {node + 7: app for node, app in again.apps.items()}
    again.contexts = {node + 7: context for node, context in again.contexts.items()}
    again.online = set(again.apps)
    serve(stopped, Control(resume=True), again, open_audit)
    assert (tmp_path / "alone" / "models.safetensors").read_bytes() == (
        tmp_path / "stopped" / "models.safetensors"
    ).read_bytes()


def test_a_directory_that_another_process_writes_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    experiment = six(**PLURALITY, rounds=2, out=str(tmp_path / "run"))
    serve(experiment, Control(), grid_of(experiment, tmp_path / "data"), open_audit)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with RunDirectory(experiment.out).claimed(experiment, resume=True, overwrite=False):
        longer = experiment.with_settings(rounds=9)
        for control in (Control(resume=True), Control(overwrite=True)):
            with pytest.raises(LidflError, match="written by another process"):
                serve(longer, control, grid_of(experiment, tmp_path / "data"), open_audit)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_nobody_else_writes_to_the_directory_of_a_server_at_work(tmp_path: Path) -> None:
    experiment = six(**PLURALITY, rounds=2, out=str(tmp_path / "run"))
    seen = []

    def audit(experiment: Experiment) -> LocalAudit:
        with pytest.raises(LidflError, match="written by another process"):
            run(experiment, overwrite=True)
        seen.append(is_at_work(RunDirectory(experiment.out)))
        return open_audit(experiment)

    serve(experiment, Control(), grid_of(experiment, tmp_path / "data"), audit)
    assert seen == [True]
    assert not is_at_work(RunDirectory(experiment.out))


def test_run_config_overrides_the_experiment_and_leaves_what_is_empty() -> None:
    config = {"rounds": 3, "out": "", "in-flight": 2, "resume": True, "something-else": 1}
    experiment, control = read_run_config(Experiment(out="runs/x"), config)
    assert (experiment.rounds, experiment.out, experiment.checkpoint_every) == (3, "runs/x", 1)
    assert control == Control(resume=True, in_flight=2)


def test_a_setting_under_its_old_name_is_taken_and_its_new_name_told(caplog: pytest.LogCaptureFixture) -> None:
    ranked = Experiment(method="lidfl-ranked", proposal="rknn", out="runs/x")
    experiment, _ = read_run_config(ranked, {"propose": "one"})
    assert experiment.groups == "one"
    assert "'propose' is now called 'groups'" in caplog.text


def test_a_server_ends_soon_after_the_superlink_that_started_it() -> None:
    code = (
        "import subprocess, sys, time, lidfl.flower.server as server; server.GRACE = 0.1\n"
        "parent = subprocess.Popen(['sleep', '0.5'])\n"
        "server.end_with_parent(['flwr-serverapp', '--parent-pid', str(parent.pid)])\n"
        "parent.wait(); print('orphaned', flush=True); time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=40, check=False)
    assert (done.returncode, done.stdout) == (1, b"orphaned\n"), done.stderr
