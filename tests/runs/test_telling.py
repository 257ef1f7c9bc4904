"""A round in words, and the margin as far as a server can tell."""

from typing import Any

import numpy as np
import pytest

from lidfl.adversaries.collusion import margin
from lidfl.protocol import Birth, first_choices
from lidfl.runs.record import RoundRecord
from lidfl.runs.telling import estimate_margin, log_line, story
from tests.records import round_record


def test_the_estimate_never_promises_more_than_there_is_when_the_honest_agree() -> None:
    """Against the simulator's margin, which knows who is honest: all of them vote for one model, others anyhow."""
    rng = np.random.default_rng(0)
    exact = 0
    for _ in range(3_000):
        honest, others, candidates = int(rng.integers(1, 7)), int(rng.integers(0, 9)), int(rng.integers(2, 6))
        seats = int(rng.integers(1, candidates))
        good = [(int(rng.integers(candidates)),)] * honest
        bad = [(int(choice),) for choice in rng.integers(candidates, size=others)]
        truth = margin(good, bad, [0] * candidates, seats, 1)
        votes = dict(enumerate(first_choices([*good, *bad], candidates)))
        estimate = estimate_margin(votes, seats, honest)
        assert truth is not None
        assert estimate is not None
        assert estimate <= truth
        exact += estimate == truth
    assert exact > 2_000


def test_by_hand() -> None:
    # Three honest voters; model 1 has three first choices, and of two seats' rivals 0 needs 2 more, 2 needs 3.
    assert estimate_margin({0: 2, 1: 3, 2: 0}, seats=2, num_honest=3) == 2 + 3
    assert estimate_margin({0: 2, 1: 3, 2: 0}, seats=1, num_honest=3) == 2, "equal votes remove the older"
    assert estimate_margin({0: 1, 1: 1, 2: 2}, seats=1, num_honest=5) == 2, "divided: the most liked counts"
    assert estimate_margin({0: 5, 1: 1}, seats=2, num_honest=3) is None, "nobody has to go"
    assert estimate_margin({0: 0, 1: 0}, seats=1, num_honest=3) is None, "nobody voted"


def test_a_line_tells_votes_margin_who_was_late_and_what_was_rejected() -> None:
    record = RoundRecord(
        round_index=2,
        born=(Birth(5, (1,), (4,)),),
        votes={1: 3, 5: 2},
        removed=(5,),
        rejected={"missing": 1},
        refused={"late": 1},
        late=(3,),
        margin_estimate=1,
        seconds=8.04,
    )
    assert log_line(record, 20, 6) == (
        "round 3/20, votes 1:3 5:2 (5 of 6), out 5, margin about 1, late: client 3, rejected: 1 missing, "
        "refused: 1 late, 8.0 s"
    )
    assert RoundRecord.from_json(record.to_json() | {"bytes": {}, "late": [3]}).late == (3,)


ONE, MORE = Birth(5, (1, 3), (4,)), Birth(6, (1,), (2, 7))


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        (dict(born=(ONE,), removed=(1,), margin=2), "client 4 trained model 5 from 1, 3; out: 1; margin 2"),
        (dict(born=(MORE,), removed=()), "2 clients trained model 6 from 1"),
        (dict(born=(ONE, MORE), removed=(1, 6)), "2 candidates, 5 to 6; out: 1, 6"),
        (dict(born=(), removed=(3,)), "fewer clients, a shorter list; out: 3"),
        (dict(born=(), removed=(), rejected={"missing": 2}), "no usable update, the list stays"),
        (
            dict(born=(ONE,), rejected={"missing": 2, "late": 1}),
            "client 4 trained model 5 from 1, 3; 3 replies rejected",
        ),
    ],
)
def test_a_round_is_told_in_words(happened: dict[str, Any], told: str) -> None:
    nothing: dict[str, Any] = dict(born=(), removed=(), votes={}, rejected={}, margin=None)
    assert story(round_record(2, **nothing | happened)) == f"round 3: {told}"
