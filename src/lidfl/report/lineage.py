"""The family tree of a run's models: who was made of whom, how long each lived, and what is poisoned."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from math import inf

from lidfl.protocol import Birth
from lidfl.runs.record import RoundRecord


class Origin(StrEnum):
    """What the simulator knows of the updates that made a model."""

    CLEAN = "untouched by attackers"
    TAINTED = "honest update, poisoned ancestor"
    POISONED = "attacker's update"


@dataclass(frozen=True)
class Life:
    """A model from its birth to the vote that removed it; rounds are counted from 1."""

    birth: Birth
    """Which model it is, which models it was made from, and whose updates it holds."""
    origin: Origin
    born: int
    """Its first round; 0 for the initial list."""
    gone: int | None = None
    """The round of the vote that removed it; None if it is in the last list."""
    loss: float | None = None
    """Its mean validation loss over all clients; None if that is not known or not finite."""

    @property
    def model(self) -> int:
        """Its id."""
        return self.birth.model

    @property
    def parents(self) -> tuple[int, ...]:
        """The models that it was made from; none for the initial list."""
        return self.birth.parents

    @property
    def rejected(self) -> bool:
        """Whether it was voted out in the round it was born."""
        return self.born == self.gone

    @property
    def known_loss(self) -> float:
        """Its loss, to compare by; one that is not known or not finite is worse than any other."""
        return inf if self.loss is None else self.loss


@dataclass(frozen=True)
class Lineage:
    """All models of a run by id, in order of birth."""

    lives: dict[int, Life]
    rounds: int

    @property
    def candidates(self) -> list[Life]:
        """The models that were proposed in some round: all but the initial list."""
        return [life for life in self.lives.values() if life.born]

    @property
    def final(self) -> list[Life]:
        """The models of the last list."""
        return [life for life in self.lives.values() if life.gone is None]

    @cached_property
    def line(self) -> list[Life]:
        """The best model of the last list and its ancestors, the oldest first.

        The best has the lowest loss. Of a model with several parents the better one counts.
        """
        line = [min(self.final, key=_by_loss)] if self.final else []
        while line and line[-1].parents:
            line.append(min((self.lives[parent] for parent in line[-1].parents), key=_by_loss))
        return line[::-1]

    def length(self, life: Life) -> int:
        """How many votes a model survived."""
        return (self.rounds + 1 if life.gone is None else life.gone) - max(life.born, 1)

    def rounds_with_clean(self) -> int:
        """After how many rounds the list held a model that no attacker had touched."""
        held: set[int] = set()
        for life in self.lives.values():
            if life.origin is Origin.CLEAN:
                held.update(range(max(life.born, 1), life.gone or self.rounds + 1))
        return len(held)


def _by_loss(life: Life) -> float:
    return life.known_loss


def trace(records: Sequence[RoundRecord], list_size: int) -> Lineage:
    """The family tree that a run's records tell; the initial list is clean."""
    lives = {model: Life(Birth(model, (), ()), Origin.CLEAN, 0) for model in range(list_size)}
    for record in records:
        for birth in record.born:
            parents = [lives[parent].origin for parent in birth.parents]
            lives[birth.model] = Life(birth, origin_of(record.honest.get(birth.model), parents), record.number)
        for model, loss in record.loss.items():
            lives[model] = replace(lives[model], loss=loss)
        for model in record.removed:
            lives[model] = replace(lives[model], gone=record.number)
    return Lineage(lives, records[-1].number if records else 0)


def origin_of(honest: bool | None, parents: Iterable[Origin]) -> Origin:
    """What a model is, given who made it and of what; one that the server made is as bad as its worst parent."""
    before = set(parents)
    if honest is False or (honest is None and Origin.POISONED in before):
        return Origin.POISONED
    return Origin.CLEAN if before <= {Origin.CLEAN} else Origin.TAINTED
