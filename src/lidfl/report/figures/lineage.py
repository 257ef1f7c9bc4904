"""The family tree, drawn: every model at the height of its loss, for as long as it lived."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import altair as alt

from lidfl.report.figures.base import (
    Drawing,
    Figure,
    Panel,
    Row,
    chart_of,
    every,
    log_ticks,
    origin_colour,
    origin_keys,
    round_axis,
)
from lidfl.report.figures.rejected import rejected_panel
from lidfl.report.lineage import Life, Lineage, Origin
from lidfl.report.read import RunRecords
from lidfl.report.words import counted, ordinal, were

MOST_LIVES = 250
"""How many models' lives are drawn, and how many of those voted out at birth."""
MOST_ANCESTORS = 600
"""How many of the best model's line are drawn."""
SMALLEST_LOSS = 1e-6
"""The axis is logarithmic, and 0 has no place on it."""
HEIGHT, BEND_HEIGHT = 340, 60
"""Pixels of the tree, and of its compressed upper part."""
TOOLTIP = [
    alt.Tooltip("model:N"),
    alt.Tooltip("parents:N", title="made of"),
    alt.Tooltip("who:N", title="by"),
    alt.Tooltip("origin:N", title="it is"),
    alt.Tooltip("life:N", title="life"),
    alt.Tooltip("told:N", title="loss"),
]


def lineage_figure(run: RunRecords, *, name: str = "lineage", title: str = "Lineage of the list") -> Figure | None:
    """The family tree above a strip of those voted out at birth; None if there is no list."""
    if not run.experiment.keeps_list:
        return None
    tree = run.lineage
    panels = (Panel(_chart(Excerpt.of(tree)), height=HEIGHT), *rejected_panel(tree))
    keys = origin_keys(life.origin for life in tree.lives.values())
    return Figure(name, title, lineage_caption(tree), panels, keys)


# What is drawn


@dataclass(frozen=True)
class Excerpt:
    """The part of a family tree that is drawn, so that a thousand births stay legible."""

    tree: Lineage
    lives: list[Life]
    """The initial list, the best model's line, and who lived longer than `shortest` rounds."""
    shortest: int
    rejected: list[Life]
    """Some of those voted out at birth."""
    step: int
    """Every how many of them."""
    span: tuple[float, ...]
    """The lowest and the highest loss; between them, if there is one, that above which the scale is compressed."""

    @classmethod
    def of(cls, tree: Lineage) -> "Excerpt":
        """What to draw of a tree."""
        family = {life.model for life in drawn_line(tree)}
        stayed = [life for life in tree.lives.values() if not life.rejected]
        lengths = sorted((tree.length(life) for life in stayed), reverse=True)
        shortest = lengths[MOST_LIVES] if len(lengths) > MOST_LIVES else 0
        lives = [life for life in stayed if life.model in family or tree.length(life) > shortest or not life.born]
        rejected, step = every([life for life in tree.candidates if life.rejected], MOST_LIVES)
        return cls(tree, lives, shortest, rejected, step, _span(tree, lives))

    @property
    def bend(self) -> float | None:
        """Where the scale changes: attackers' losses run away, and the good line should still be seen."""
        return self.span[1] if len(self.span) == 3 else None

    def height(self, life: Life) -> float:
        """The loss at which a model is drawn; one that is not finite is at the upper edge."""
        return min(max(life.known_loss, self.span[0]), self.span[-1])


def _span(tree: Lineage, lives: Iterable[Life]) -> tuple[float, ...]:
    """The losses that the axis has to hold."""
    known = [life.loss for life in lives if life.loss is not None] or [1.0]
    first = [life.loss for life in lives if not life.born and life.loss is not None] or known
    line = [life.loss for life in tree.line if life.loss is not None] or known
    low, high = max(0.93 * min(known), SMALLEST_LOSS), max(1.07 * max(known), 2 * SMALLEST_LOSS)
    bend = max(2.5 * max(first), 1.2 * max(line))
    return (low, high) if high < 1.5 * bend else (low, bend, high)


def drawn_line(tree: Lineage) -> list[Life]:
    """The best model and its ancestors; of very many so many that no eye sees the gaps."""
    return every(tree.line, MOST_ANCESTORS)[0]


# The chart


def _chart(excerpt: Excerpt) -> Drawing:
    """A line for a life, a step from its parent, a dot if it was out at once; the best model's ancestry is bold."""
    tree = excerpt.tree
    axes = {"x": round_axis(tree.rounds), "y": _loss_axis(excerpt), "color": origin_colour()}
    bold = {life.model for life in drawn_line(tree)}
    steps = [_step_row(life, excerpt) for life in excerpt.lives if life.parents]
    dots = chart_of(_life_row(life, excerpt) for life in excerpt.rejected).encode(**axes)
    layers = [
        _steps((row for row in steps if row["model"] not in bold), axes, strokeWidth=0.8, opacity=0.3),
        dots.mark_circle(size=16, opacity=0.6).encode(tooltip=TOOLTIP),
        _lives((_life_row(life, excerpt) for life in excerpt.lives), axes, strokeWidth=2, opacity=0.8),
        _steps((row for row in steps if row["model"] in bold), axes, strokeWidth=3.5),
        _lives(_bold_rows(excerpt), axes, strokeWidth=3.5, strokeCap="square"),
    ]
    if excerpt.bend:
        mark = chart_of([{"loss": excerpt.bend}]).mark_rule(strokeDash=[2, 3], opacity=0.5)
        layers.insert(0, mark.encode(y=axes["y"]))
    return alt.layer(*layers)


def _lives(rows: Iterable[Row], axes: Row, **style: Any) -> alt.Chart:
    return chart_of(rows).encode(**axes, x2="until:Q", tooltip=TOOLTIP).mark_rule(clip=True, **style)


def _steps(rows: Iterable[Row], axes: Row, **style: Any) -> alt.Chart:
    return chart_of(rows).encode(**axes, y2="to:Q").mark_rule(**style)


def _loss_axis(excerpt: Excerpt) -> alt.Y:
    """Losses on a logarithmic scale, compressed above its bend."""
    pixels = [HEIGHT, BEND_HEIGHT, 0] if excerpt.bend else [HEIGHT, 0]
    values = log_ticks(excerpt.span)
    return alt.Y(
        "loss:Q",
        title="validation loss",
        scale=alt.Scale(type="log", domain=list(excerpt.span), range=pixels, nice=False),
        axis=alt.Axis(values=values, tickCount=len(values), format="~g", labelOverlap=False),
    )


def _life_row(life: Life, excerpt: Excerpt) -> Row:
    began = f"born in {life.born:,}" if life.born else "there from the start"
    return {
        "round": life.born,
        "until": excerpt.tree.rounds if life.gone is None else life.gone,
        "loss": excerpt.height(life),
        "told": "not finite" if life.loss is None else f"{life.loss:.3f}",
        "model": life.model,
        "parents": ", ".join(map(str, life.parents)) or "the initial model",
        "who": _who(life.birth.clients),
        "origin": life.origin,
        "life": f"{began}, {_end(life)}",
    }


def _end(life: Life) -> str:
    if life.gone is None:
        return "in the last list"
    return "voted out at once" if life.rejected else f"out in {life.gone:,}"


def _who(clients: Sequence[int]) -> str:
    if not clients:
        return "the server"
    return f"{len(clients)} clients" if len(clients) > 1 else f"client {clients[0]}"


def _step_row(life: Life, excerpt: Excerpt) -> Row:
    """From the height of the best parent to the model's own, in the round of its birth."""
    parent = min(excerpt.height(excerpt.tree.lives[parent]) for parent in life.parents)
    own = excerpt.height(life)
    return {"round": life.born, "loss": parent, "to": own, "origin": life.origin, "model": life.model}


def _bold_rows(excerpt: Excerpt) -> list[Row]:
    """Each ancestor of the best model from its own birth to that of the next."""
    line = drawn_line(excerpt.tree)
    ends = [life.born for life in line[1:]] + [excerpt.tree.rounds]
    return [_life_row(life, excerpt) | {"until": end} for life, end in zip(line, ends, strict=True)]


# The caption


def lineage_caption(tree: Lineage) -> str:
    """What was born, what was voted out, the line that lived on, and what is left out of the figure."""
    return " ".join([_births_in_words(tree), _clean_in_words(tree), _line_in_words(tree), _marks_in_words(tree)])


def _births_in_words(tree: Lineage) -> str:
    born = tree.candidates
    poisoned = [life for life in born if life.origin is Origin.POISONED]
    if not poisoned:
        return f"None of {counted(len(born), 'candidate')} was poisoned."
    at_once = [life for life in poisoned if life.rejected]
    text = f"{len(poisoned):,} of {counted(len(born), 'candidate')} {were(poisoned)} poisoned, "
    text += f"and {len(at_once):,} of them {were(at_once)} voted out in the round of their birth"
    rest = [tree.length(life) for life in poisoned if not life.rejected]
    return text + (f"; the others stayed for {median(rest):.0f} rounds in the median." if rest else ".")


def _clean_in_words(tree: Lineage) -> str:
    held = tree.rounds_with_clean()
    when = f"every one of {tree.rounds:,} rounds" if held == tree.rounds else f"{held:,} of {tree.rounds:,} rounds"
    return f"After {when} the list held a model that no attacker had ever touched."


def _line_in_words(tree: Lineage) -> str:
    trainings = [life for life in tree.line if life.born]
    if not trainings:
        return "The best model of the last list is one of the initial ones."
    bad = sum(life.origin is Origin.POISONED for life in trainings)
    by = f"{bad:,} of them by an attacker" if bad else "none of them by an attacker"
    steps = counted(len(trainings), "step")
    return f"The bold line leads to the last list's best model, {tree.line[-1].model}, in {steps}, {by}."


def _marks_in_words(tree: Lineage) -> str:
    excerpt = Excerpt.of(tree)
    text = "A line is a model's life in the list"
    if excerpt.shortest:
        hidden = sum(not life.rejected for life in tree.lives.values()) - len(excerpt.lives)
        short = f"off the bold line that stayed for at most {counted(excerpt.shortest, 'round')}"
        text += f" ({counted(hidden, 'model')} {short} are left out)"
    text += ", a dot one that was voted out at birth"
    text += f" (every {ordinal(excerpt.step)} is drawn; the strip below counts all)." if excerpt.step > 1 else "."
    text += f" Above the dotted line, at {excerpt.bend:.1f}, the scale is compressed." if excerpt.bend else ""
    endless = any(life.loss is None for life in [*excerpt.lives, *excerpt.rejected])
    return text + (" A loss that is not finite, or not known, is at the upper edge." if endless else "")
