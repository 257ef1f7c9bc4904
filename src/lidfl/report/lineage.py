"""The family tree of a run's models: who was made of whom, how long each lived, and what is poisoned."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from math import inf

from lidfl.report.thinning import every
from lidfl.rundir import Born, Line, births

MOST_LIVES = 250
"""How many models' lives are drawn, and how many of those voted out at birth."""

SMALLEST_LOSS = 1e-6
"""The axis is logarithmic, and 0 has no place on it."""


class Origin(StrEnum):
    """What the simulator knows of the updates that made a model."""

    CLEAN = "untouched by attackers"
    TAINTED = "honest update, poisoned ancestor"
    POISONED = "attacker's update"


@dataclass(frozen=True)
class Life:
    """A model from its birth to the vote that removed it; rounds are counted from 1."""

    model: int
    parents: tuple[int, ...]
    clients: tuple[int, ...]
    origin: Origin
    born: int
    """Its first round, 0 for the initial list."""
    gone: int | None = None
    """The round of the vote that removed it; None if it is in the last list."""
    loss: float | None = None
    """Its mean validation loss over all clients; None if that is not known or not finite."""

    @property
    def rejected(self) -> bool:
        """Whether it was voted out in the round it was born."""
        return self.born == self.gone


@dataclass(frozen=True)
class Lineage:
    """All models of a run by id, in order of birth."""

    lives: dict[int, Life]
    rounds: int

    @property
    def born(self) -> list[Life]:
        """The models that joined an initial list."""
        return [life for life in self.lives.values() if life.born]

    @property
    def final(self) -> list[Life]:
        """The models of the last list."""
        return [life for life in self.lives.values() if life.gone is None]

    @cached_property
    def line(self) -> list[Life]:
        """The final list's model of the lowest loss and its ancestors, the oldest first.

        Of a model with several parents the better one counts.
        """
        line = [min(self.final, key=_loss)] if self.final else []
        while line and line[-1].parents:
            line.append(min((self.lives[parent] for parent in line[-1].parents), key=_loss))
        return line[::-1]

    def length(self, life: Life) -> int:
        """How many votes a model survived."""
        return (self.rounds + 1 if life.gone is None else life.gone) - max(life.born, 1)

    def rounds_with_clean(self) -> int:
        """After how many rounds there was a model in the list that no attacker had touched."""
        held: set[int] = set()
        for life in self.lives.values():
            if life.origin is Origin.CLEAN:
                held.update(range(max(life.born, 1), life.gone or self.rounds + 1))
        return len(held)


def trace(lines: Sequence[Line], list_size: int) -> Lineage:
    """The family tree that a run's records tell; the initial list is clean."""
    lives = {model: Life(model, (), (), Origin.CLEAN, 0) for model in range(list_size)}
    for line in lines:
        for birth in births(line):
            lives[birth.model] = _life(birth, line["round"] + 1, lives)
        for model, loss in line["loss"].items():
            lives[int(model)] = replace(lives[int(model)], loss=loss)
        for model in line["removed"]:
            lives[model] = replace(lives[model], gone=line["round"] + 1)
    return Lineage(lives, lines[-1]["round"] + 1 if lines else 0)


def _life(birth: Born, round_number: int, lives: dict[int, Life]) -> Life:
    origin = origin_of(birth.honest, [lives[parent].origin for parent in birth.parents])
    return Life(birth.model, birth.parents, birth.clients, origin, round_number)


def origin_of(honest: bool | None, parents: Iterable[Origin]) -> Origin:
    """What a model is, given who made it and of what; the server's mean of models is as bad as its worst parent."""
    before = set(parents)
    if honest is False or (honest is None and Origin.POISONED in before):
        return Origin.POISONED
    return Origin.CLEAN if before <= {Origin.CLEAN} else Origin.TAINTED


@dataclass(frozen=True)
class Drawn:
    """What of a lineage is drawn, so that a thousand births stay legible."""

    lives: list[Life]
    """The initial list, the best model's line, and who lived longer than `shortest` rounds."""
    shortest: int
    rejected: list[Life]
    """Some of those voted out at birth."""
    step: int
    """Every how many of them."""
    span: tuple[float, ...]
    """The lowest and the highest loss; between them, if there is one, that above which the scale is compressed."""

    @property
    def bend(self) -> float | None:
        """Where the scale changes: attackers' losses run away, and the good line should still be seen."""
        return self.span[1] if len(self.span) == 3 else None

    def height(self, life: Life) -> float:
        """The loss at which a model is drawn; one that is not finite is at the upper edge."""
        return min(max(_loss(life), self.span[0]), self.span[-1])


def chosen(lineage: Lineage) -> Drawn:
    """What to draw of a lineage."""
    family = {life.model for life in lineage.line}
    stayed = [life for life in lineage.lives.values() if not life.rejected]
    lengths = sorted((lineage.length(life) for life in stayed), reverse=True)
    shortest = lengths[MOST_LIVES] if len(lengths) > MOST_LIVES else 0
    lives = [life for life in stayed if life.model in family or lineage.length(life) > shortest or not life.born]
    rejected, step = every([life for life in lineage.born if life.rejected], MOST_LIVES)
    return Drawn(lives, shortest, rejected, step, _span(lineage, lives))


def _span(lineage: Lineage, lives: Sequence[Life]) -> tuple[float, ...]:
    """The losses that a lineage's axis has to hold."""
    known = [life.loss for life in lives if life.loss is not None] or [1.0]
    first = [life.loss for life in lives if not life.born and life.loss is not None] or known
    line = [life.loss for life in lineage.line if life.loss is not None] or known
    low, high = max(0.93 * min(known), SMALLEST_LOSS), max(1.07 * max(known), 2 * SMALLEST_LOSS)
    bend = max(2.5 * max(first), 1.2 * max(line))
    return (low, high) if high < 1.5 * bend else (low, bend, high)


def _loss(life: Life) -> float:
    return inf if life.loss is None else life.loss
