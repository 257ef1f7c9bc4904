"""A ballot that comes too late for its vote counts for the next, once, unless something newer has come."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from flwr.app import Message

from lidfl.flower import codec
from lidfl.flower.answers import Answers
from lidfl.flower.codec import Reply, read_ask
from lidfl.flower.exchange import Overdue, Sent
from lidfl.flower.fleet import MOST_OVERDUE, Fleet, Limits
from lidfl.flower.members import Members
from lidfl.protocol import ModelList, Proposed, Vote
from lidfl.types import Ballot, Client
from tests.flower.nodes import six
from tests.flower.test_patience import Clock, SlowGrid, always, clock

__all__ = ["clock"]  # the fixture

SLOW = 2
FIRST = ModelList.initial(torch.zeros(3), 1).with_new([Proposed((0,), torch.ones(3), (0,))])


class VotingGrid(SlowGrid):
    """The quick vote for the first model, the slow one as it is told."""

    cast: Ballot = (1,)

    def reply(self, message: Message, _: object) -> Message:  # type: ignore[override]
        node = message.metadata.dst_node_id
        assert read_ask(message.content).kind == "vote"
        ballot = self.cast if node == SLOW else (0,)
        return codec.reply_with(codec.pack_reply(Reply("ballot", ballot=ballot)), message)


@pytest.fixture
def grid(clock: Clock) -> VotingGrid:
    return VotingGrid(clock, {0: always(1.0), 1: always(1.0), SLOW: always(20.0)})


@pytest.fixture
def answers(grid: VotingGrid, tmp_path: Path) -> Answers:
    """Three nodes, of which nobody is willing to wait for the last."""
    fleet = Fleet(grid, Limits(deadline=60.0, patience=4.0, share=0.34))
    fleet.patience.charge(SLOW, 60.0)
    members = Members(fleet, 3, tmp_path / "nodes.json")
    members.node_of = {0: 0, 1: 1, 2: SLOW}
    return Answers(six(num_clients=3), fleet, members)


def vote(
    answers: Answers, candidates: ModelList, round_index: int, voters: tuple[Client, ...] = (0, 1, 2)
) -> dict[Client, object]:
    return dict(answers.answer(Vote(round_index, candidates, voters, seats=1)))


def test_a_late_ballot_counts_for_the_next_vote_by_what_it_named(answers: Answers, clock: Clock) -> None:
    assert vote(answers, FIRST, 0) == {0: (0,), 1: (0,)}
    clock.now += 30
    later = FIRST.without([0]).with_new([Proposed((0,), torch.full((3,), 2.0), (1,))])
    found = vote(answers, later, 1)
    assert found == {0: (0,), 1: (0,), 2: (0,)}, "what was second is first now"
    assert answers.fleet.conduct[SLOW].refused["late"] == 2


def test_what_a_late_ballot_named_and_is_gone_counts_for_nobody(answers: Answers, clock: Clock) -> None:
    vote(answers, FIRST, 0)
    clock.now += 30
    later = FIRST.without([1]).with_new([Proposed((0,), torch.full((3,), 2.0), (1,))])
    assert vote(answers, later, 1)[2] == ()


def test_a_ballot_in_time_goes_before_a_late_one(answers: Answers, grid: VotingGrid, clock: Clock) -> None:
    vote(answers, FIRST, 0)
    grid.delays[SLOW] = always(0.5)
    grid.cast = (0,)
    assert vote(answers, FIRST, 1)[2] == (0,), "the late one has not come yet"
    clock.now += 30
    grid.delays[SLOW] = always(1e9)
    assert 2 not in vote(answers, FIRST, 2), "now it has, and is older than what the node has said since"


def test_a_late_ballot_counts_once(answers: Answers, grid: VotingGrid, clock: Clock) -> None:
    vote(answers, FIRST, 0)
    clock.now += 30
    grid.delays[SLOW] = always(1e9)
    assert vote(answers, FIRST, 1)[2] == (1,)
    assert 2 not in vote(answers, FIRST, 2), "from here on it is for the protocol to let it stand"


@pytest.mark.parametrize("odd", [(-1,), (99, 10**12), (1, 1, 1), (5, 1)])
def test_whatever_a_late_ballot_says_it_names_models_once_or_not_at_all(
    answers: Answers, grid: VotingGrid, clock: Clock, odd: Ballot
) -> None:
    grid.cast = odd
    vote(answers, FIRST, 0)
    clock.now += 30
    assert vote(answers, FIRST, 1)[2] == ((1,) if 1 in odd else ())


def test_late_replies_that_are_never_uploaded_cost_one_look_a_second(clock: Clock) -> None:
    """A node announces reply after reply; only its latest is looked into, and none for longer than it may take."""
    looked: list[int] = []

    class Announced:
        reply_to = ""

        def __init__(self, number: int) -> None:
            self.number = number

        def unpack(self, most_bytes: int) -> None:
            looked.append(self.number)

        def discard(self) -> None: ...

    fleet = Fleet(SlowGrid(clock, {1: always(5.0)}), Limits(patience=10.0, deadline=60.0))
    for number in range(3 * MOST_OVERDUE):
        sent = Sent(7, "secret", clock.now, Announced(number))
        fleet.give_up(f"message {number}", Overdue(sent, 100, clock.now + 60, lambda *_: None))
    assert len(fleet.overdue) == MOST_OVERDUE
    list(fleet.ask({1: codec.pack_ask(codec.Ask("vote"))}, "evaluate", "0", 100))
    assert set(looked) == {3 * MOST_OVERDUE - 1}
    assert len(looked) <= 6
    clock.now += 60
    list(fleet.ask({1: codec.pack_ask(codec.Ask("vote"))}, "evaluate", "1", 100))
    assert not fleet.overdue
