"""What `lidfl.run` shows, calls and returns."""

import ast
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import lidfl
from lidfl import STOP, Experiment, LidflError, Progress, Run
from lidfl.cli.flags import as_flags
from lidfl.data import load_dataset
from lidfl.report.read import RunRecords
from lidfl.report.story import run_commands, run_notices
from lidfl.runs.directory import RunDirectory
from tests.command import lines_without_times
from tests.test_layers import MODULES, SOURCE, within

FEW: dict[str, Any] = dict(rounds=10, local_steps=3, eval_every=2)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run."""
    return lidfl.run(Experiment(out=str(tmp_path_factory.mktemp("runs") / "done"), **FEW))


def test_a_run_reads_as_its_summary(done: Run) -> None:
    written = json.loads((done.directory.path / "summary.json").read_text())
    assert isinstance(done, Mapping)
    assert dict(done) == written == done.summary
    assert done["rounds"] == 10
    assert done == Run(done.directory.path), "and is read again from its directory"
    assert f"test accuracy {written['test_accuracy']:.3f}" in repr(done)
    with pytest.raises(LidflError, match="nowhere is not a run of lidfl"):
        Run("nowhere")


def test_records_are_a_sequence_with_a_row_a_round(done: Run) -> None:
    rows = done.records.rows()
    assert [row["round"] for row in rows] == [*range(1, 11)]
    assert [row["test_accuracy"] is not None for row in rows] == [False, True] * 5
    assert rows[-1]["test_accuracy"] == pytest.approx(done["test_accuracy"])
    assert done.records[-1].number == 10
    assert [record.number for record in done.records[2:4]] == [3, 4]


def test_records_become_a_table_of_pandas(done: Run) -> None:
    pytest.importorskip("pandas")
    table = done.records.to_pandas()
    assert table.index.tolist() == [*range(1, 11)]
    assert table["deployed_accuracy"].dropna().iloc[-1] == done["deployed_accuracy"]


def test_without_pandas_it_says_what_to_install(done: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(LidflError, match="pip install pandas"):
        done.records.to_pandas()


def test_modules_are_the_list_and_pick_takes_the_one_that_serves_the_data_best(done: Run) -> None:
    data = load_dataset("digits", np.random.default_rng(0))
    x, y = data.images[:, 0], data.labels
    modules = done.modules()
    vectors = torch.stack([torch.cat([p.detach().flatten() for p in module.parameters()]) for module in modules])
    assert torch.equal(vectors, done.directory.final_state().models.parameters)
    with torch.no_grad():
        outputs = [module(done.standardised(x)) for module in modules]
    hits = [float((out.argmax(1).numpy() == y).mean()) for out in outputs]
    losses = [float(torch.nn.functional.cross_entropy(out, torch.from_numpy(y))) for out in outputs]
    picked = done.pick(x, y)
    ids = list(picked.losses)
    assert picked.id == ids[int(np.argmin(losses))]
    assert [picked.accuracies[number] for number in ids] == pytest.approx(hits)
    assert (done.predict(x, picked.module) == y).mean() == pytest.approx(picked.accuracy)
    with pytest.raises(LidflError, match=r"x has images of \(1, 1, 64\); the models take \(1, 8, 8\)"):
        done.pick(x.reshape(len(x), -1), y)


def test_the_report_is_shown_in_place_and_the_plot_is_a_chart(done: Run, tmp_path: Path) -> None:
    page = done.report(tmp_path / "page.html")
    assert page.path.read_text().startswith("<!doctype html>")
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    alone, beside = done.plot().to_dict(), done.plot(done).to_dict()
    assert {row["line"] for row in alone["data"]["values"]} == {"best model", "deployed"}
    assert {row["line"] for row in beside["data"]["values"]} == {"done"}


def test_a_callback_ends_a_run_early_with_a_summary_and_resumed_it_goes_on(tmp_path: Path) -> None:
    alone, stopped = (Experiment(out=str(tmp_path / name), **FEW) for name in ("alone", "stopped"))
    seen: list[int] = []

    def watch(progress: Progress) -> None:
        seen.append(progress.record.number)

    def enough(progress: Progress) -> object:
        return STOP if progress.record.number == 5 else progress

    early = lidfl.run(stopped, callbacks=[watch, enough])
    assert seen == [1, 2, 3, 4, 5]
    assert (early["stopped_at"], early["diverged_at"], early["rounds"]) == (5, None, 10)
    assert 0 <= early["test_accuracy"] <= 1
    assert "5 rounds" in repr(early)
    whole = lidfl.run(stopped, resume=True, callbacks=watch)
    assert seen == [*range(1, 11)]
    assert whole["stopped_at"] is None
    lidfl.run(alone)
    assert lines_without_times(Path(alone.out)) == lines_without_times(Path(stopped.out))


def test_the_report_says_who_ended_a_run_and_how_to_repeat_one_with_objects(tmp_path: Path) -> None:
    def mine(own: torch.Tensor) -> torch.Tensor:
        return -own

    experiment = Experiment(attack=mine, out=str(tmp_path / "run"), **FEW)
    run = RunRecords.read(lidfl.run(experiment, callbacks=lambda _: STOP).directory.path)
    assert "A callback ended this run after round 1 of 10." in run_notices(run)
    (command,) = run_commands(run)
    assert command == ("In Python, with the same objects:", "lidfl.run(Experiment(attack=…, …))")


class Place:
    """A path that is not of pathlib."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_a_place_may_be_any_path(tmp_path: Path) -> None:
    assert Experiment(out=tmp_path / "run") == Experiment(out=str(tmp_path / "run"))  # type: ignore[arg-type]
    assert Experiment(out=Place(tmp_path)).out == str(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (dict(experiment=None), "experiment must be a lidfl.Experiment, not None; write lidfl.run(Experiment(…))"),
        (dict(experiment={"rounds": 3}), "not a dict; write lidfl.run(Experiment(**settings))"),
        (dict(callbacks=3), "callbacks must be functions that take a lidfl.Progress, not 3"),
        (dict(callbacks=[print, "stop"]), "callbacks must be functions that take a lidfl.Progress, not 'stop'"),
        (dict(callbacks=lambda: None), "callbacks: <lambda> cannot be called with one argument"),
        (dict(observe=lambda progress, more: None), "observe: <lambda> cannot be called with one argument"),
        (dict(observe=0), "observe must be functions"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    arguments: dict[str, Any], told: str, tmp_path: Path
) -> None:
    experiment = Experiment(out=str(tmp_path / "run"), **FEW)
    with pytest.raises(LidflError) as error:
        lidfl.run(**{"experiment": experiment, **arguments})
    assert told in str(error.value)
    assert not (tmp_path / "run").exists()


def test_what_names_no_run_and_what_is_no_data_is_refused_in_one_line(done: Run) -> None:
    with pytest.raises(LidflError, match='a run is named by its directory, such as "runs/first", not by 3'):
        Run(3)  # type: ignore[arg-type]
    with pytest.raises(LidflError, match="x is text; make it an array of numbers"):
        done.pick("a", "b")
    with pytest.raises(LidflError):
        done.pick(1.0, 2)


def test_nothing_is_shown_where_nobody_looks_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lidfl.run(Experiment(out=str(tmp_path / "run"), **FEW))
    assert capsys.readouterr().out == ""
    lidfl.run(Experiment(out=str(tmp_path / "run"), **FEW), overwrite=True, progress=True)
    assert "round 2/10  deployed" in capsys.readouterr().out


def test_in_a_terminal_there_is_a_live_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    lidfl.run(Experiment(out=str(tmp_path / "run"), **FEW))
    assert "validation loss" in capsys.readouterr().out
    lidfl.run(Experiment(out=str(tmp_path / "run"), **FEW), overwrite=True, progress=False)
    assert capsys.readouterr().out == ""


class Kernel:
    """Stands for the shell behind a notebook."""


@pytest.mark.parametrize("notebook", ["IPython", "marimo"])
def test_in_a_notebook_there_is_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notebook: str) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=shown.append)
    display = SimpleNamespace(display=lambda _, display_id: handle, HTML=str)
    output = SimpleNamespace(replace=shown.append)
    modules = {
        "IPython": SimpleNamespace(get_ipython=Kernel, display=display),
        "marimo": SimpleNamespace(running_in_notebook=lambda: True, output=output, Html=str),
    }
    monkeypatch.setitem(sys.modules, notebook, modules[notebook])
    lidfl.run(Experiment(out=str(tmp_path / "<run>"), name="<b>", **FEW))
    assert '<progress max="10" value="10"' in shown[-1]
    assert "round 10/10 · accuracy" in shown[-1]
    before = len(shown)
    lidfl.run(Experiment(out=str(tmp_path / "<run>"), **FEW), overwrite=True, progress=False)
    assert len(shown) == before


def test_an_interrupted_run_says_how_to_go_on_in_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lidfl.run(Experiment(out=str(tmp_path / "run"), **FEW), progress=True, callbacks=interrupt)
    assert "go on with lidfl.run(experiment, resume=True)" in capsys.readouterr().out
    assert RunDirectory(tmp_path / "run").rounds_done() == 1


# Words


def test_everything_public_is_shown() -> None:
    assert dir(lidfl) == sorted(lidfl.__all__)
    for name in lidfl.__all__:
        assert getattr(lidfl, name) is not None
    from lidfl.cli.registered import REGISTRIES

    assert {registry.kind.replace(" ", "_").replace("-", "") for registry in REGISTRIES} <= set(dir(lidfl))


def test_arguments_become_flags_on_the_command_line() -> None:
    told = 'x exists; go on with resume=True, set out=… or election="ranked", or rows="a b"; write gm:iterations=…'
    want = 'x exists; go on with --resume, set --out or --election ranked, or --rows "a b"; write gm:iterations=…'
    assert as_flags(told) == want


PYTHON_TOO = [path for path in MODULES if not within(path, ["cli", "flower", "theory", "report/story.py"])]


@pytest.mark.parametrize("path", PYTHON_TOO, ids=lambda path: str(path.relative_to(SOURCE)))
def test_errors_below_the_command_line_name_arguments_not_flags(path: Path) -> None:
    """Write `out=…`, `resume=True` or `engine="loop"`; the command line turns them into flags."""
    raised = [
        node.exc for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise) and node.exc
    ]
    texts = [part.value for call in raised for part in ast.walk(call) if isinstance(part, ast.Constant)]
    assert not [text for text in texts if isinstance(text, str) and " --" in f" {text}" and "lidfl " not in text]
