"""The family tree says who was made of whom, and what is poisoned."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from lidfl.protocol import Birth
from lidfl.report.lineage import Lineage, Origin, origin_of, trace
from lidfl.report.read import RunRecords
from lidfl.runs.record import RoundRecord
from tests.report.by_hand import FIVE, FIVE_ROUNDS, GOOD_LINE, put_run, recorded


def test_the_lineage_of_five_rounds_by_hand() -> None:
    tree = trace(GOOD_LINE, 2)
    told = {life.model: (life.origin.name, life.born, life.gone) for life in tree.lives.values()}
    assert told == {
        0: ("CLEAN", 0, 3),
        1: ("CLEAN", 0, 1),
        2: ("POISONED", 1, None),
        3: ("TAINTED", 2, 2),
        4: ("CLEAN", 3, 5),
        5: ("POISONED", 4, 4),
        6: ("CLEAN", 5, None),
    }
    assert [life.model for life in tree.line] == [0, 4, 6]
    assert [tree.length(tree.lives[model]) for model in (0, 1, 2, 4, 5, 6)] == [2, 0, 5, 2, 0, 1]
    assert tree.rounds_with_clean() == 5


def test_the_line_leads_to_the_lowest_loss_of_the_last_list() -> None:
    assert [life.model for life in trace(FIVE_ROUNDS, 2).line] == [0, 2]


@pytest.mark.parametrize(
    ("honest", "parents", "expected"),
    [
        (False, [Origin.CLEAN], Origin.POISONED),
        (True, [Origin.CLEAN], Origin.CLEAN),
        (True, [Origin.POISONED], Origin.TAINTED),
        (True, [Origin.TAINTED], Origin.TAINTED),
        (None, [Origin.CLEAN, Origin.CLEAN], Origin.CLEAN),
        (None, [Origin.CLEAN, Origin.TAINTED], Origin.TAINTED),
        (None, [Origin.CLEAN, Origin.POISONED], Origin.POISONED),
    ],
)
def test_origin_follows_from_who_trained_and_on_what(
    honest: bool | None, parents: list[Origin], expected: Origin
) -> None:
    assert origin_of(honest, parents) is expected


def one_round(
    number: int, births: Mapping[Birth, bool | None], loss: dict[int, float], out: list[int]
) -> RoundRecord:
    return RoundRecord(
        round_index=number - 1,
        born=tuple(births),
        honest={birth.model: honest for birth, honest in births.items()},
        votes=dict.fromkeys(loss, 1),
        loss=loss,
        removed=tuple(out),
        rejected={},
    )


def test_several_births_in_a_round_are_all_traced() -> None:
    births = {Birth(1, (0,), (9,)): False, Birth(2, (0,), (1,)): True, Birth(3, (1, 2), ()): None}
    tree = trace([one_round(1, births, {0: 3.0, 1: 9.0, 2: 2.0, 3: 1.0}, out=[0, 1, 2])], 1)
    assert [life.origin.name for life in tree.lives.values()] == ["CLEAN", "POISONED", "CLEAN", "POISONED"]
    assert [life.model for life in tree.line] == [0, 2, 3]


def family_of_several_parents() -> list[RoundRecord]:
    """In the second round one model is born, of honest updates to the clean 0, the poisoned 3 and the clean 2."""
    first = {Birth(2, (0,), (1,)): True, Birth(3, (1,), (9,)): False}
    losses = {0: 3.0, 1: 3.0, 2: 2.0, 3: 9.0}
    return [
        one_round(1, first, losses, out=[1]),
        one_round(2, {Birth(4, (0, 3, 2), (1, 2, 4)): True}, {0: 3.0, 2: 2.0, 3: 9.0, 4: 1.0}, out=[0]),
    ]


def check_several_parents(tree: Lineage) -> None:
    child = tree.lives[4]
    assert child.parents == (0, 3, 2)
    assert child.birth.clients == (1, 2, 4)
    assert child.origin is Origin.TAINTED
    assert [life.model for life in tree.line] == [0, 2, 4]


def test_one_birth_of_several_parents_keeps_them_all() -> None:
    check_several_parents(trace(family_of_several_parents(), 2))


def test_one_birth_of_several_parents_keeps_them_on_disk(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", family_of_several_parents(), recorded(FIVE, list_size=2))
    check_several_parents(RunRecords.read(run).lineage)


def test_models_are_clean_where_nobody_tells_who_is_honest() -> None:
    """As in a real federation, whose server cannot know."""
    births = {Birth(1, (0,), (9,)): None}
    assert trace([one_round(1, births, {0: 3.0, 1: 9.0}, out=[0])], 1).lives[1].origin is Origin.CLEAN
