"""Where the time of a run went."""

import altair as alt

from lidfl.report.figures.base import BLUE, Drawing, Figure, Panel, chart_of
from lidfl.report.read import RunRecords
from lidfl.report.words import counted, percent


def phases_figure(run: RunRecords) -> Figure:
    """A bar a phase."""
    panel = Panel(_chart(run), height=34 * len(seconds_by_phase(run)))
    return Figure("time", "Where the time went", _caption(run), (panel,))


def seconds_by_phase(run: RunRecords) -> dict[str, float]:
    """The time of all rounds by phase, the longest first; what no phase counted is the rest."""
    phases: dict[str, float] = {}
    for record in run.records:
        for phase, seconds in record.phases.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    rest = run.seconds - sum(phases.values())
    if rest > 0.01 * run.seconds:
        phases["the rest"] = rest
    return dict(sorted(phases.items(), key=lambda item: -item[1]))


def _chart(run: RunRecords) -> Drawing:
    phases = seconds_by_phase(run)
    rows = [
        {"phase": phase, "seconds": seconds, "text": f"{seconds:.2f} s, {percent(seconds / (run.seconds or 1))}"}
        for phase, seconds in phases.items()
    ]
    room = alt.Scale(domain=[0, 1.35 * max(phases.values(), default=0) or 1], nice=False)
    base = chart_of(rows).encode(
        y=alt.Y("phase:N", title=None, sort=None, axis=alt.Axis(grid=False)),
        x=alt.X("seconds:Q", title="seconds", stack=None, scale=room, axis=alt.Axis(grid=False, tickCount=6)),
        tooltip=["phase:N", alt.Tooltip("seconds:Q", format=".2f")],
    )
    bars = base.mark_bar(color=BLUE, height={"band": 0.7})
    return bars + base.mark_text(align="left", dx=5).encode(text="text:N")


def _caption(run: RunRecords) -> str:
    phase, seconds = next(iter(seconds_by_phase(run).items()), ("nothing", 0.0))
    each = run.seconds / run.rounds_done * 1000
    text = f"{counted(run.rounds_done, 'round')} took {run.seconds:.1f} s, {each:.1f} ms each"
    return f"{text}; {percent(seconds / (run.seconds or 1))} of it went into {phase}."
