"""A round does what the paper's steps say, and nothing that a client sends can stop it."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from torch import Tensor

from lidfl.methods.aggregators import aggregator
from lidfl.methods.elections import plurality
from lidfl.methods.proposals import Aggregate, client, from_aggregator, jurors
from lidfl.protocol import (
    Birth,
    Elect,
    ModelList,
    Outcome,
    Replies,
    Request,
    Rules,
    Train,
    Trained,
    Vote,
    lid_round,
    single_round,
    valid_ballots,
    valid_updates,
)
from lidfl.protocol.rounds import in_form
from lidfl.runs.loop import drive
from lidfl.types import Client
from tests.vectors import close, on_a_line, rows

CLIENTS = (0, 1, 2, 3)
REASONS = {"missing", "sent twice", "not asked", "wrong type", "wrong shape", "no such model", "not finite"}
UPDATE = torch.tensor([1.0, 2.0])
NAN, INF = float("nan"), float("inf")

FEDAVG: Aggregate = aggregator.resolve("fedavg")
RKNN: Aggregate = aggregator.resolve("rknn")
MEB: Aggregate = aggregator.resolve("meb")
ELECT: Elect = plurality


def two_models() -> ModelList:
    """Models 4 and 7, both children of models long gone; the next to be born is 9."""
    return ModelList(rows([0, 0], [10, 10]), ids=(4, 7), parents=((2,), (4,)), ages=(3, 1), next_id=9)


class Clients:
    """Answers requests from a script, and remembers what was asked."""

    def __init__(
        self,
        train: Callable[[Train], Replies] | None = None,
        ballots: Mapping[Client, object] | Replies = (),
    ) -> None:
        self.train = train or send_all(UPDATE)
        self.ballots = ballots
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Replies:
        self.asked.append(request)
        if isinstance(request, Train):
            return self.train(request)
        return self.ballots.items() if isinstance(self.ballots, Mapping) else self.ballots

    @property
    def kinds(self) -> list[type[Request]]:
        return [type(request) for request in self.asked]


ABSTAIN: dict[Client, object] = dict.fromkeys(CLIENTS, ())


def send_all(update: Tensor) -> Callable[[Train], Replies]:
    """Every worker sends the same update of the first model it is offered."""
    return lambda request: [(client, Trained(offer[0], update)) for client, offer in request.offers.items()]


def send(replies: Mapping[Client, object]) -> Callable[[Train], Replies]:
    """Clients send these replies, whatever they were asked."""
    return lambda request: list(replies.items())


def send_own(updates: Mapping[Client, Tensor]) -> Callable[[Train], Replies]:
    """Each client sends its own update of the model it was offered."""
    return lambda request: [
        (client, Trained(request.offers[client][0], update)) for client, update in updates.items()
    ]


def rules(aggregate: Aggregate | None = None, **options: Any) -> Rules:
    """The paper's rules, or all clients' updates through an aggregator."""
    if aggregate is None:
        return Rules((client,), ELECT, **options)
    proposals = (partial(from_aggregator, aggregate),)
    return Rules(proposals, ELECT, same_parent=True, workers=None, **options)


def lid(clients: Clients, seed: int = 0, models: ModelList | None = None, **options: Any) -> Outcome:
    models = models or two_models()
    return drive(lid_round(models, 5, CLIENTS, default_rng(seed), rules(**options)), clients)


def single(clients: Clients, seed: int = 0, aggregate: Aggregate = FEDAVG, num_honest: int = 1) -> Outcome:
    models = ModelList.initial(torch.tensor([1.0, 1.0]), 1)
    round_ = single_round(models, 5, CLIENTS, default_rng(seed), rules(aggregate, num_honest=num_honest))
    return drive(round_, clients)


def same_list(one: ModelList, other: ModelList) -> bool:
    return torch.equal(one.parameters, other.parameters) and all(
        getattr(one, name) == getattr(other, name) for name in ("ids", "parents", "ages", "next_id")
    )


def same(one: Outcome, other: Outcome) -> bool:
    return same_list(one.models, other.models) and one.record == other.record


# The list.


def test_the_initial_list_is_copies_of_one_model() -> None:
    start = torch.tensor([1.0, 2.0])
    models = ModelList.initial(start, 3)
    assert models.parameters.tolist() == [[1, 2]] * 3
    assert (models.ids, models.parents, models.ages) == ((0, 1, 2), ((), (), ()), (0, 0, 0))
    assert (models.next_id, len(models)) == (3, 3)
    models.parameters[0] += 1
    assert start.tolist() == [1, 2]
    assert models.parameters[1].tolist() == [1, 2]


# A round of LiD-FL, step by step.


def test_one_client_is_asked_to_train_one_model() -> None:
    clients = Clients()
    lid(clients)
    train = clients.asked[0]
    assert isinstance(train, Train)
    assert (train.round_index, len(train.offers)) == (5, 1)
    ((worker, offer),) = train.offers.items()
    assert worker in CLIENTS
    assert offer in [(0,), (1,)]
    assert same_list(train.models, two_models())


def test_every_model_goes_to_every_client_equally_often() -> None:
    counts = dict.fromkeys([(client, model) for client in CLIENTS for model in (0, 1)], 0)
    for seed in range(800):
        train = next(lid_round(two_models(), 0, CLIENTS, default_rng(seed), rules()))
        assert isinstance(train, Train)
        ((worker, (parent,)),) = train.offers.items()
        counts[worker, parent] += 1
    assert all(60 < count < 140 for count in counts.values())


@pytest.mark.parametrize("seed", range(6))
def test_all_clients_vote_on_the_list_and_the_new_model(seed: int) -> None:
    clients = Clients()
    lid(clients, seed)
    train, vote = clients.asked
    assert isinstance(train, Train)
    assert isinstance(vote, Vote)
    ((_, (parent,)),) = train.offers.items()
    child = [1.0, 2.0] if parent == 0 else [11.0, 12.0]
    assert vote.candidates.parameters.tolist() == [[0, 0], [10, 10], child]
    assert vote.candidates.ids == (4, 7, 9)
    assert vote.candidates.parents == ((2,), (4,), (two_models().ids[parent],))
    assert vote.candidates.ages == (3, 1, 0)
    assert (vote.round_index, vote.voters, vote.seats, vote.ranks) == (5, CLIENTS, 2, 1)


def test_the_least_voted_goes_and_the_others_are_a_vote_older() -> None:
    clients = Clients(ballots={0: (2,), 1: (2,), 2: (0,), 3: ()})
    outcome = lid(clients)
    ((worker, (parent,)),) = clients.asked[0].offers.items()  # type: ignore[union-attr]
    parent_id = two_models().ids[parent]
    child = (two_models().parameters[parent] + UPDATE).tolist()
    assert outcome.models.parameters.tolist() == [[0, 0], child]
    assert outcome.models.ids == (4, 9)
    assert outcome.models.parents == ((2,), (parent_id,))
    assert outcome.models.ages == (4, 1)
    assert outcome.models.next_id == 10
    assert outcome.record.round_index == 5
    assert outcome.record.born == (Birth(9, (parent_id,), (worker,)),)
    assert outcome.record.votes == {4: 1, 7: 0, 9: 2}
    assert outcome.record.removed == (7,)
    assert outcome.record.rejected == {}


def test_a_new_model_nobody_wants_goes_at_once_and_its_id_is_never_used_again() -> None:
    outcome = lid(Clients(ballots={0: (0,), 1: (1,)}))
    assert outcome.models.parameters.tolist() == [[0, 0], [10, 10]]
    assert (outcome.models.ids, outcome.models.ages) == ((4, 7), (4, 2))
    assert outcome.models.next_id == 10
    assert outcome.record.removed == (9,)


def test_when_all_abstain_the_oldest_goes() -> None:
    outcome = lid(Clients(ballots=ABSTAIN))
    assert outcome.record.removed == (4,)
    assert outcome.models.ids == (7, 9)
    assert outcome.record.votes == {4: 0, 7: 0, 9: 0}


def test_the_list_that_went_in_is_left_as_it_was() -> None:
    models = two_models()
    lid(Clients(ballots={0: (2,)}), models=models)
    assert same_list(models, two_models())


def test_ten_rounds_keep_the_list_in_order_of_birth() -> None:
    models = ModelList.initial(torch.zeros(2), 3)
    for seed in range(10):
        models = lid(Clients(ballots={0: (3,), 1: (seed % 3,)}), seed, models).models
        assert list(models.ids) == sorted(models.ids)
        assert list(models.ages) == sorted(models.ages, reverse=True)
        assert (len(models), models.next_id) == (3, 4 + seed)


def test_what_is_brought_into_one_form_leads_there_from_its_own_parent_unless_it_overflows_on_the_way() -> None:
    """The form here: twice the absolute values."""
    updates = {3: (0, [1.0, -2.0]), 5: (1, [-30.0, 1.0]), 6: (1, [3e38, 0.0])}
    trained = {client: Trained(parent, torch.tensor(update)) for client, (parent, update) in updates.items()}
    seen: list[Tensor | None] = []

    def form(models: Tensor, parents: Tensor | None = None) -> Tensor:
        seen.append(parents)
        return 2 * models.abs()

    formed = in_form(trained, two_models(), rules(canonical=form))
    # (1, -2) becomes (2, 4), from (0, 0); (-20, 11) becomes (40, 22), from (10, 10).
    assert [sent.update.tolist() for sent in formed.values()] == [[2, 4], [30, 12], trained[6].update.tolist()]
    assert {client: sent.parent for client, sent in formed.items()} == {3: 0, 5: 1, 6: 1}
    (parents,) = seen
    assert parents is not None
    assert parents.tolist() == [[0, 0], [10, 10], [10, 10]]
    assert in_form({}, two_models(), rules(canonical=form)) == {}
    assert in_form(trained, two_models(), rules()) is trained


# With an aggregator.

CLUSTERS = {0: 1.0, 1: 100.0, 2: 2.0, 3: 101.0}


def test_with_an_aggregator_every_client_trains_the_same_model() -> None:
    clients = Clients()
    lid(clients, aggregate=FEDAVG)
    train = clients.asked[0]
    assert isinstance(train, Train)
    assert train.offers in [dict.fromkeys(CLIENTS, (0,)), dict.fromkeys(CLIENTS, (1,))]


@pytest.mark.parametrize("aggregate", [RKNN, MEB])
def test_the_child_is_the_mean_of_one_group_drawn_at_random(aggregate: Aggregate) -> None:
    updates = {client: value * UPDATE for client, value in CLUSTERS.items()}
    drawn = set()
    for seed in range(30):
        clients = Clients(send_own(updates), ballots=dict.fromkeys(CLIENTS, (2,)))
        outcome = lid(clients, seed, aggregate=aggregate, num_honest=2)
        (birth,) = outcome.record.born
        parent = two_models().ids.index(*birth.parents)
        members = frozenset(birth.clients)
        mean = torch.stack([updates[client] for client in members]).mean(0)
        assert close(outcome.models.parameters[-1], two_models().parameters[parent] + mean)
        drawn.add(members)
    assert drawn == {frozenset({0, 2}), frozenset({1, 3})}


def test_a_client_that_sends_nothing_usable_is_in_no_group() -> None:
    updates = {client: CLUSTERS[client] * UPDATE for client in (1, 2, 3)}
    outcome = lid(Clients(send_own({**updates, 0: torch.zeros(3)}), ABSTAIN), aggregate=FEDAVG)
    (birth,) = outcome.record.born
    assert birth.clients == (1, 2, 3)
    assert outcome.record.rejected == {"wrong shape": 1}


def test_the_aggregator_is_told_how_many_are_honest() -> None:
    for num_honest in (1, 2, 4):
        outcome = lid(Clients(ballots=ABSTAIN), aggregate=RKNN, num_honest=num_honest)
        assert len(outcome.record.born[0].clients) == num_honest


# A round of ordinary federated learning.


def test_a_single_round_replaces_the_model_by_the_aggregate_without_a_vote() -> None:
    clients = Clients(send_own({client: client * UPDATE for client in CLIENTS}))
    outcome = single(clients)
    assert clients.kinds == [Train]
    assert outcome.models.parameters.tolist() == [[2.5, 4]]
    assert (outcome.models.ids, outcome.models.parents, outcome.models.next_id) == ((1,), ((0,),), 2)
    assert outcome.record.born == (Birth(1, (0,), CLIENTS),)
    assert (outcome.record.removed, outcome.record.rejected) == ((0,), {})


def test_a_single_round_asks_every_client() -> None:
    clients = Clients()
    single(clients)
    (train,) = clients.asked
    assert isinstance(train, Train)
    assert train.offers == dict.fromkeys(CLIENTS, (0,))
    assert train.round_index == 5


def test_a_single_round_may_draw_one_group() -> None:
    updates = {client: value * UPDATE for client, value in CLUSTERS.items()}
    outcomes = [single(Clients(send_own(updates)), seed, MEB, 2).models for seed in range(20)]
    assert {outcome.parameters[0, 0].item() for outcome in outcomes} == {2.5, 101.5}


def test_what_is_wrong_with_updates_and_with_the_choices_of_jurors_is_counted_together() -> None:
    clients = Clients(send_own({0: UPDATE, 1: torch.zeros(3)}), {0: (7,), 1: (0,), 9: (0,)})
    models = ModelList.initial(torch.tensor([1.0, 1.0]), 1)
    asking = Rules((jurors,), ELECT, candidates=len(CLIENTS))
    outcome = drive(single_round(models, 5, CLIENTS, default_rng(0), asking), clients)
    # Two updates are missing, one has three numbers; two choices are, one names nothing, one was not asked for.
    assert outcome.record.rejected == {"missing": 2 + 2, "wrong shape": 1, "no such model": 1, "not asked": 1}
    assert outcome.models.parameters.tolist() == [[2, 3]]


# A reply that is wrong is no reply, and is counted under its reason.

WRONG_UPDATES: list[tuple[str, object]] = [
    ("wrong type", None),
    ("wrong type", UPDATE),
    ("wrong type", (0, UPDATE)),
    ("wrong type", Trained(0, [1.0, 2.0])),  # type: ignore[arg-type]
    ("wrong type", Trained(0, None)),  # type: ignore[arg-type]
    ("wrong type", Trained(0, UPDATE.numpy())),  # type: ignore[arg-type]
    ("wrong type", Trained(0, UPDATE.double())),
    ("wrong type", Trained(0, UPDATE.half())),
    ("wrong type", Trained(0, UPDATE.long())),
    ("wrong type", Trained(0, UPDATE.to(torch.complex64))),
    ("wrong type", Trained(False, UPDATE)),
    ("wrong type", Trained(0.0, UPDATE)),  # type: ignore[arg-type]
    ("wrong type", Trained(None, UPDATE)),  # type: ignore[arg-type]
    ("wrong shape", Trained(0, torch.zeros(1))),
    ("wrong shape", Trained(0, torch.zeros(3))),
    ("wrong shape", Trained(0, torch.zeros(0))),
    ("wrong shape", Trained(0, torch.zeros(()))),
    ("wrong shape", Trained(0, torch.zeros(1, 2))),
    ("no such model", Trained(1, UPDATE)),
    ("no such model", Trained(-1, UPDATE)),
    ("no such model", Trained(10**30, UPDATE)),
    ("not finite", Trained(0, torch.tensor([0.0, NAN]))),
    ("not finite", Trained(0, torch.tensor([INF, 0.0]))),
    ("not finite", Trained(0, torch.tensor([0.0, -INF]))),
]


@pytest.mark.parametrize(("reason", "reply"), WRONG_UPDATES)
def test_a_wrong_update_is_counted_and_not_used(reason: str, reply: object) -> None:
    offers = {3: (0,), 8: (0,)}
    valid, rejected = valid_updates([(3, reply), (8, Trained(0, UPDATE))], offers, two_models())
    assert list(valid) == [8]
    assert rejected == {reason: 1}


@pytest.mark.parametrize(
    "update",
    [UPDATE.to_sparse(), UPDATE.to("meta")],
    ids=["sparse", "meta"],
)
def test_a_tensor_of_another_kind_is_counted_and_not_used(update: Tensor) -> None:
    valid, rejected = valid_updates([(3, Trained(0, update))], {3: (0,)}, two_models())
    assert valid == {}
    assert rejected.total() == 1


def test_the_largest_finite_update_is_used() -> None:
    update = torch.full((2,), torch.finfo(torch.float32).max)
    valid, rejected = valid_updates([(3, Trained(1, update))], {3: (0, 1)}, two_models())
    assert torch.equal(valid[3].update, update)
    assert rejected == {}


def test_silence_two_replies_and_strangers_are_counted() -> None:
    good = Trained(0, UPDATE)
    replies = [(1, good), (2, good), (1, good), (7, good)]
    valid, rejected = valid_updates(replies, dict.fromkeys(CLIENTS, (0,)), two_models())
    assert list(valid) == [2]
    assert rejected == {"missing": 2, "sent twice": 1, "not asked": 1}


def test_a_round_without_a_usable_update_leaves_the_list_unchanged() -> None:
    for reply in (None, Trained(0, torch.zeros(3)), Trained(1, torch.tensor([NAN, 0]))):
        clients = Clients(send(dict.fromkeys(CLIENTS, reply)))
        outcome = lid(clients)
        assert clients.kinds == [Train]
        assert same_list(outcome.models, two_models())
        assert (outcome.record.born, outcome.record.removed) == ((), ())
        assert outcome.record.rejected["not asked"] == 3
        assert sum(outcome.record.rejected.values()) == 4


@pytest.mark.parametrize("aggregate", [FEDAVG, RKNN])
def test_with_an_aggregator_too(aggregate: Aggregate) -> None:
    outcome = lid(Clients(send({})), aggregate=aggregate)
    assert same_list(outcome.models, two_models())
    assert outcome.record.rejected == {"missing": 4}


def test_a_single_round_without_a_usable_update_leaves_the_list_unchanged() -> None:
    outcome = single(Clients(send({1: Trained(0, torch.tensor([INF, 0]))})))
    assert same_list(outcome.models, ModelList.initial(torch.tensor([1.0, 1.0]), 1))
    assert (outcome.record.born, outcome.record.removed) == ((), ())
    assert outcome.record.rejected == {"missing": 3, "not finite": 1}


WRONG_BALLOTS: list[tuple[str, object]] = [
    ("wrong type", None),
    ("wrong type", 0),
    ("wrong type", [0]),
    ("wrong type", {0}),
    ("wrong type", "0"),
    ("wrong type", b"\x00"),
    ("wrong type", torch.tensor([0])),
    ("wrong type", (True,)),
    ("wrong type", (1.0,)),
    ("wrong type", (None,)),
    ("wrong type", ((0,),)),
    ("wrong type", (torch.tensor(0),)),
    ("wrong shape", (0, 1)),
    ("wrong shape", (0, 0)),
    ("no such model", (3,)),
    ("no such model", (-1,)),
    ("no such model", (10**30,)),
]


@pytest.mark.parametrize(("reason", "ballot"), WRONG_BALLOTS)
def test_a_wrong_ballot_is_counted_and_no_vote(reason: str, ballot: object) -> None:
    others: dict[Client, object] = {0: (2,), 1: (2,), 2: (1,)}
    spoilt = lid(Clients(ballots={**others, 3: ballot}))
    silent = lid(Clients(ballots=others))
    assert spoilt.record.rejected == {reason: 1}
    assert silent.record.rejected == {"missing": 1}
    assert same_list(spoilt.models, silent.models)
    assert spoilt.record.votes == silent.record.votes == {4: 0, 7: 1, 9: 2}


def test_who_votes_twice_or_unasked_has_no_vote() -> None:
    ballots: list[tuple[Client, object]] = [(0, (2,)), (1, (0,)), (1, (0,)), (17, (0,)), (2, (1,))]
    outcome = lid(Clients(ballots=ballots))
    assert outcome.record.votes == {4: 0, 7: 1, 9: 1}
    assert outcome.record.rejected == {"sent twice": 1, "not asked": 1, "missing": 1}


@pytest.mark.parametrize(
    ("ballot", "reason"),
    [
        ((2, 0), None),
        ((), None),
        ((0, 2, 1), "wrong shape"),
        ((1, 1), "wrong shape"),
        ((1, 3), "no such model"),
        ((1, True), "wrong type"),
    ],
)
def test_a_ranking_may_be_as_long_as_asked_for_and_names_no_model_twice(ballot: object, reason: str | None) -> None:
    models = ModelList.initial(torch.zeros(2), 3)
    ballots, rejected = valid_ballots([(6, ballot)], Vote(0, models, (6,), seats=2, ranks=2))
    assert ballots == ({} if reason else {6: ballot})
    assert rejected == ({reason: 1} if reason else {})


# Garbage of any type.

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**64),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.just(object()),
    st.sampled_from([UPDATE, torch.zeros(0), torch.tensor(NAN), torch.zeros(2, 2), torch.tensor([True])]),
)
garbage = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.builds(Trained, inner, inner),
    ),
    max_leaves=5,
)


@given(sent=st.lists(st.tuples(st.integers(-1, 5), garbage), max_size=6), seed=st.integers(0, 9))
@settings(max_examples=100)
def test_no_reply_whatsoever_stops_a_round(sent: list[tuple[Client, object]], seed: int) -> None:
    for clients in (Clients(lambda request: sent, sent), Clients(ballots=sent)):
        for outcome in (lid(clients, seed), lid(clients, seed, aggregate=RKNN, num_honest=2)):
            assert len(outcome.models) == 2
            assert outcome.models.parameters.isfinite().all()
            assert set(outcome.record.rejected) <= REASONS
    assert len(single(Clients(lambda request: sent)).models) == 1


# Determinism.


def shuffled(items: Iterable[tuple[Client, object]], seed: int) -> list[tuple[Client, object]]:
    listed = list(items)
    return [listed[place] for place in default_rng(seed).permutation(len(listed))]


@given(order=st.integers(0, 2**32), seed=st.integers(0, 2**32))
@settings(max_examples=50)
def test_the_order_in_which_replies_arrive_changes_nothing(order: int, seed: int) -> None:
    updates = on_a_line(0.1, 7, 0.3, 9) * UPDATE
    trained: list[tuple[Client, object]] = [
        *((client, Trained(parent, updates[client])) for client in CLIENTS for parent in (0,)),
        (11, None),
    ]
    ballots: list[tuple[Client, object]] = [(0, (2,)), (1, (1,)), (2, ()), (3, None), (3, (0,)), (12, ())]
    options: dict[str, Any] = {"aggregate": RKNN, "num_honest": 2}
    in_order = lid(Clients(lambda request: trained, ballots), seed, **options)
    mixed = Clients(lambda request: shuffled(trained, order), shuffled(ballots, order))
    assert same(lid(mixed, seed, **options), in_order)


@pytest.mark.parametrize("options", [{}, {"aggregate": RKNN, "num_honest": 2}, {"aggregate": FEDAVG}])
def test_the_same_generator_gives_the_same_round(options: dict[str, Any]) -> None:
    updates = {client: value * UPDATE for client, value in CLUSTERS.items()}

    def train(request: Train) -> Replies:
        return send_own({client: updates[client] for client in request.offers})(request)

    ballots: dict[Client, object] = {0: (2,), 1: (2,), 2: (0,)}
    for seed in range(10):
        again = [lid(Clients(train, ballots), seed, **options) for _ in range(2)]
        assert same(*again)


# Driving.


def test_replies_may_be_a_generator() -> None:
    clients = Clients(lambda request: (pair for pair in send_all(UPDATE)(request)), ABSTAIN)
    assert len(lid(clients).record.born) == 1


def test_a_failing_answer_is_not_taken_for_the_end_of_the_round() -> None:
    def answer(request: Request) -> Replies:
        return next(iter([]))

    with pytest.raises((StopIteration, RuntimeError)):
        drive(lid_round(two_models(), 0, CLIENTS, default_rng(0), rules()), answer)
