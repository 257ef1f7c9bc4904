"""The state between two rounds is read back bit for bit, or named as what cannot be read."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lidfl import LidflError
from lidfl.protocol import ModelList
from lidfl.runs.state import State, load_state, rounds_done_in, save_state


def some_state(rounds: int, models: int = 2) -> State:
    parents = ((), (0, 3))[:models]
    return State(rounds, ModelList(torch.randn(models, 7), tuple(range(models)), parents, (0,) * models, 9))


def test_a_state_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    state = some_state(5)
    save_state(tmp_path / "state", state)
    found = load_state(tmp_path / "state")
    assert torch.equal(found.models.parameters, state.models.parameters)
    assert (found.rounds_done, found.models.ids, found.models.parents) == (5, (0, 1), ((), (0, 3)))
    assert (found.models.ages, found.models.next_id) == ((0, 0), 9)


def test_the_number_of_rounds_is_read_without_the_models(tmp_path: Path) -> None:
    save_state(tmp_path / "state", some_state(12))
    whole = (tmp_path / "state").read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    (tmp_path / "state").write_bytes(whole[:header])
    assert rounds_done_in(tmp_path / "state") == 12
    with pytest.raises(LidflError, match="cannot read the list"):
        load_state(tmp_path / "state")


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64, b"\x02" + b"\0" * 7 + b"{}", bytes(8)])
def test_what_is_no_state_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    for read in (load_state, rounds_done_in):
        with pytest.raises(LidflError, match="cannot read the list"):
            read(tmp_path / "state")


REPLACE = """
import itertools, os
for name in itertools.cycle(("short", "long")):
    os.link(name, "link")
    os.replace("link", "state")
"""


def test_a_state_is_read_whole_while_a_run_replaces_it(tmp_path: Path) -> None:
    for name, rounds in (("short", 1), ("long", 2**20)):
        models = ModelList(torch.full((1, 5), float(rounds)), (0,), ((),), (0,), rounds)
        save_state(tmp_path / name, State(rounds, models))
    (tmp_path / "state").hardlink_to(tmp_path / "long")
    with subprocess.Popen([sys.executable, "-c", REPLACE], cwd=tmp_path) as writer:
        try:
            states = [load_state(tmp_path / "state") for _ in range(2000)]
        finally:
            writer.kill()
    assert {state.rounds_done for state in states} == {1, 2**20}
    assert all((state.models.parameters == state.rounds_done).all() for state in states)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (dict(next_id=-1), "its notes are damaged"),
        (dict(ages=(0, 0.5)), "its notes are damaged"),
        (dict(standing={0: ("a",)}), "its notes are damaged"),
        (dict(parameters=torch.ones(2, 7, dtype=torch.int64)), "its models are damaged"),
        (dict(parameters=torch.ones(2)), "its models are damaged"),
        (dict(parameters=torch.ones(2, 0)), "its models are damaged"),
        (dict(parameters=torch.ones(3, 7)), "its models are not as many as its notes say"),
        (dict(ages=(0,)), "its models are not as many as its notes say"),
        (dict(ids=(4, 4)), "its models are numbered twice"),
        (dict(ids=(0, 9)), "its models are numbered twice"),  # the next to be born would be 9 too
    ],
)
def test_a_state_whose_parts_contradict_each_other_is_refused_and_says_which(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    state = some_state(5)
    save_state(tmp_path / "state", replace(state, models=replace(state.models, **changed)))
    with pytest.raises(LidflError, match=f"cannot read the list in .*: {reason}; return to an earlier state"):
        load_state(tmp_path / "state")
