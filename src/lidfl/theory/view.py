"""A plan as the terminal shows it."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lidfl.theory.plan import RULES, Plan, Section, curve, landmarks
from lidfl.theory.promises import SIGNED, as_text
from lidfl.theory.question import Question

BARS = "▁▂▃▄▅▆▇█"
STYLES = {(key, holds): ("green" if holds else "red") for key in SIGNED for holds in (True, False)}
"""Margins are the promises that say yes or no: green if the quota holds, red if not."""


def as_rich(made: Plan, given: Mapping[str, Any]) -> RenderableType:
    """A plan for the terminal; settings that are not in `given` are marked as defaults."""
    electorate = made.question.electorate
    share = f"{float(100 * electorate.honest_fraction):.3g} %"
    models = "model" if electorate.list_size == 1 else "models"
    head = f"{electorate.num_clients:,} clients, {electorate.num_honest:,} of them honest ({share})"
    head += f", a list of {electorate.list_size:,} {models}"
    parts: list[RenderableType] = [Text(head, style="bold")]
    for section in made.sections:
        parts += [_title(section.title), _promise_table(section)]
    parts += [_curve_table(made), _title("Assumed"), _settings_table(made.question, given)]
    return Group(*parts)


def _title(text: str) -> RenderableType:
    return Padding(Text(text, style="bold cyan"), (1, 0, 0, 0))


def _grid() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True, min_width=21)
    table.add_column(no_wrap=True, justify="right", min_width=9, style="bold")
    table.add_column(ratio=1)
    return table


def _promise_table(section: Section) -> Table:
    table = _grid()
    for promise in section.promises:
        style = STYLES.get((promise.key, (promise.value or 0) >= 0), "")
        table.add_row(promise.name, Text(promise.text, style=style), Text(promise.sentence, style="dim"))
    return table


def _curve_table(made: Plan) -> RenderableType:
    """The bounds after a few rounds, and the shape of each curve."""
    question = made.question
    paper = "the paper's" + (", c = 1" if question.candidates > 1 else "")
    table = Table("round", paper, "uniform", "favourite", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for point in curve(question, landmarks(question.rounds)):
        table.add_row(f"{int(point['round']):,}", *(as_text(float(point[name])) for name in ("paper", *RULES)))
    highest = max(point[name] for point in made.curve for name in RULES)
    table.add_row("", "", *(sparkline([point[name] for point in made.curve], highest) for name in RULES))
    told = "Bounds on E[f − f*] after so many rounds, and their shape (rounds at equal ratios):"
    return Padding(Group(Text(told, style="dim"), table), (1, 0, 0, 0))


def sparkline(values: Iterable[float], highest: float) -> str:
    """Values from 0 to `highest` as bars of eight heights.

    >>> sparkline([8, 4, 0], highest=8)
    '█▅▁'
    """
    return "".join(BARS[min(7, int(8 * value / highest))] if highest > 0 else BARS[0] for value in values)


def _settings_table(question: Question, given: Mapping[str, Any]) -> Table:
    table = _grid()
    for setting in fields(Question):
        value = getattr(question, setting.name)
        if value is not None:
            mark = "" if setting.name in given else " (default)"
            flag = f"--{setting.name.replace('_', '-')}{mark}"
            meaning = Text(f"{setting.metadata['help']}.", style="dim")
            table.add_row(flag, f"{value:,}" if isinstance(value, int) else f"{value:g}", meaning)
    return table
