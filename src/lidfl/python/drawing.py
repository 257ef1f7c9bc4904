"""A run's chart, and its report inside a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from lidfl.errors import LidflError
from lidfl.report import write_report
from lidfl.runs.directory import RunDirectory

if TYPE_CHECKING:
    import altair

    from lidfl.report.figures.base import Row

HEIGHT = 700
"""Pixels of a report inside a notebook."""


@dataclass(frozen=True)
class InlinePage:
    """A page on disk that a notebook shows in place."""

    path: Path

    def _repr_html_(self) -> str:
        page = escape(self.path.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'


def report_of(run: Path, out: Path | None) -> InlinePage:
    """Write the report of a run."""
    return InlinePage(write_report([run], out=out)[0])


def chart_of_runs(runs: Sequence[RunDirectory]) -> "altair.Chart":
    """Accuracy over rounds: of one run its best model and what is deployed, of several what is deployed."""
    import altair as alt

    from lidfl.report.figures.base import accuracy_axis, accuracy_top, chart_of, round_axis

    rows = _lines_of(runs[0]) if len(runs) == 1 else [row for run in runs for row in _line_of(run)]
    if not rows:
        raise LidflError("no round of the run was tested; set eval_every to no more than its rounds")
    last = max(row["round"] for row in rows)
    lines = list(dict.fromkeys(row["line"] for row in rows))
    colour = alt.Color("line:N", title=None, sort=lines)
    y = accuracy_axis("value", accuracy_top(row["value"] for row in rows))
    chart = chart_of(rows, width=560, height=260).mark_line(point=len(rows) < 100, strokeWidth=2)
    tooltip = ["line:N", "round:Q", alt.Tooltip("value:Q", title="test accuracy", format=".3f")]
    return chart.encode(x=round_axis(last), y=y, color=colour, strokeDash=alt.StrokeDash("line:N"), tooltip=tooltip)


def _lines_of(run: RunDirectory) -> "list[Row]":
    """The best model and what honest clients deploy, of one run."""
    tested = [record for record in run.records() if record.tested]
    best = [{"round": r.number, "value": r.best_accuracy, "line": "best model"} for r in tested]
    deployed = [{"round": r.number, "value": r.deployed_accuracy, "line": "deployed"} for r in tested]
    return [row for row in best + deployed if row["value"] is not None]


def _line_of(run: RunDirectory) -> "list[Row]":
    """What honest clients deploy, of one run among others."""
    name = run.path.resolve().name
    return [row | {"line": name} for row in _lines_of(run) if row["line"] == "deployed"]
