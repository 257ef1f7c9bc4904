"""A round's record is one type and one line, and is read back as it was written."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lidfl import LidflError
from lidfl.protocol import Birth, Record
from lidfl.runs.record import Findings, RecordWriter, RoundRecord, Spent, finite, read_records
from tests.records import birth, round_record

IDS = st.integers(0, 10**9)
NUMBERS = st.floats(0, 1e6)
BIRTHS = st.builds(Birth, IDS, st.lists(IDS, max_size=4).map(tuple), st.lists(IDS, max_size=4).map(tuple))
RECORDS = st.builds(
    RoundRecord,
    round_index=st.integers(0, 10**6),
    born=st.lists(BIRTHS, max_size=4, unique_by=lambda one: one.model).map(tuple),
    votes=st.dictionaries(IDS, st.integers(0, 100)),
    removed=st.lists(IDS, max_size=3).map(tuple),
    rejected=st.dictionaries(st.text(), st.integers(1, 9)),
    loss=st.dictionaries(IDS, st.none() | NUMBERS),
    margin=st.none() | st.integers(-5, 50),
    stood=st.integers(0, 9),
    skipped=st.integers(0, 9),
    spent=st.none() | st.builds(Spent, *[st.integers(0, 10**12)] * 4),
    seconds=NUMBERS,
    phases=st.dictionaries(st.text(), NUMBERS),
)


@given(RECORDS)
def test_a_line_is_read_back_as_it_was_written(record: RoundRecord) -> None:
    assert RoundRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_who_is_honest_accuracies_and_traffic_are_read_back_too() -> None:
    told = round_record(
        born=(birth(4, 0), birth(5, 0, 4, clients=())),
        honest={4: True, 5: None},
        accuracy={4: 0.25, 5: 0.5},
        deployed_accuracy=0.5,
        traffic={"sent": 10, "received": 3},
        refused={"late": 1},
    )
    assert RoundRecord.from_json(json.loads(json.dumps(told.to_json()))) == told


def test_what_nobody_could_tell_is_not_in_the_line() -> None:
    line = round_record(born=(birth(4, 0),)).to_json()
    assert line["born"] == [{"model": 4, "parents": [0], "clients": [0]}]
    assert not line.keys() & {"accuracy", "deployed_accuracy", "bytes", "refused", "honest"}


def test_the_only_birth_of_a_round_keeps_all_its_parents() -> None:
    """An earlier version wrote the first parent alone, and 16, 17, 19 became 16."""
    line = round_record(born=(birth(20, 16, 17, 19, clients=(3, 5)),)).to_json()
    assert line["born"][0]["parents"] == [16, 17, 19]


def test_a_record_is_the_servers_and_what_was_found_out() -> None:
    server = Record(3, (birth(7, 2),), {2: 4, 7: 1}, (7,), {"missing": 1})
    found = Findings(margin=2, accuracy={2: 0.5})
    record = RoundRecord.of(server, found, seconds=1.5, phases={"training": 1.0})
    assert (record.number, record.margin, record.stayed, record.tested) == (4, 2, [2], True)
    assert (record.best_accuracy, record.seconds, record.phases) == (0.5, 1.5, {"training": 1.0})


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    writer = RecordWriter(path)
    writer.append(round_record())
    writer.close()
    good = path.read_text()
    for line in ("[]", "{}", "3", '{"round": 1, "votes": []}', "garbage", '{"round": 1, "born": [3]}'):
        path.write_text(f"{good}{line}\n")
        with pytest.raises(LidflError, match=r"rounds\.jsonl: line 2 is not the record of a round"):
            list(read_records(path))


def test_there_is_no_infinity_in_json() -> None:
    assert [finite(value) for value in (1.5, float("inf"), float("nan"))] == [1.5, None, None]


@pytest.mark.parametrize("loss", [1.2559497485194033e29, 3.4e38, 1e299, None])
def test_whatever_loss_an_attacker_reaches_the_record_is_read_back(loss: float | None, tmp_path: Path) -> None:
    """A bound of 1e18 once cost a run of 1,500 rounds its summary: sign flips blow a CNN's loss up to 1e29."""
    written = round_record(born=(birth(4, 0),), loss={0: 0.5, 4: loss})
    writer = RecordWriter(tmp_path / "rounds.jsonl")
    writer.append(written)
    writer.close()
    assert list(read_records(tmp_path / "rounds.jsonl")) == [written]
