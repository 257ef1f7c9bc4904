"""The examples run, as they stand, and show what they say."""

import ast
import inspect
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lidfl import Run, attack
from tests.command import lidfl_here

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def example(name: str) -> dict[str, Any]:
    """Run an example as a script; what it leaves behind."""
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_a_table_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    left = example("tabular.py")
    assert left["kept"]["deployed_accuracy"] > 0.9 > 0.5 > left["mean"]["deployed_accuracy"]
    assert left["mine"].id in left["mine"].losses
    assert "deployed accuracy: one mean of all" in capsys.readouterr().out


def test_one_data_set_a_client_and_a_run_that_ends_when_it_is_good_enough() -> None:
    left = example("hospitals.py")
    run = left["run"]
    assert left["experiment"].num_clients == len(left["hospitals"]) == 6
    assert 1 <= run["stopped_at"] < 100
    assert run.records[-1].best_accuracy > 0.95
    assert all(record.best_accuracy <= 0.95 for record in run.records[:-1])


def test_an_attack_as_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack, "functions", dict(attack.functions))
    words = ["--plugin", EXAMPLES / "whisper.py", "--attack", "whisper:volume=0.5", "--rounds", 5, "--quiet"]
    assert lidfl_here("run", *words, "--out", "run") == 0
    assert Run("run").experiment.plugin.startswith(f"{EXAMPLES / 'whisper.py'}@")


class App:
    """Stands for marimo's: cells that are given by name what earlier cells return."""

    def __init__(self, **_: Any) -> None:
        self.cells: list[Callable[..., Any]] = []

    def cell(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.cells.append(function)
        return function

    def run(self) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for cell in self.cells:
            made = cell(**{name: known[name] for name in inspect.signature(cell).parameters})
            known |= zip(returned(cell), made or (), strict=True)
        return known


def returned(cell: Callable[..., Any]) -> list[str]:
    """The names in a cell's last statement, `return a, b`."""
    statements = [node for node in ast.walk(ast.parse(inspect.getsource(cell))) if isinstance(node, ast.Return)]
    return [node.id for node in ast.walk(statements[-1]) if isinstance(node, ast.Name)]


def test_the_notebook_goes_from_nothing_to_a_plotted_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    marimo = SimpleNamespace(App=App, md=str, running_in_notebook=lambda: False)
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    left = runpy.run_path(str(EXAMPLES / "compare.py"))["app"].run()
    lines = {row["line"] for row in left["chart"].to_dict()["data"]["values"]}
    assert lines == set(left["methods"])
    deployed = {method: run["deployed_accuracy"] for method, run in zip(left["methods"], left["runs"], strict=True)}
    assert deployed["lidfl-ranked"] > 0.9 > 0.5 > deployed["fedavg"]
    assert Path("runs/compare/lidfl-ranked/report.html").exists()
