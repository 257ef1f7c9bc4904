"""What the candidates of a vote are: single clients', groups', jurors' choices, averages; and who is asked."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from lidfl.errors import LidflError
from lidfl.methods.elections import ranked
from lidfl.methods.proposals import average, resolve_proposals
from lidfl.protocol import (
    Choose,
    Gathered,
    ModelList,
    Outcome,
    Replies,
    Request,
    Rules,
    Train,
    Trained,
    Vote,
    lid_round,
)
from lidfl.runs.loop import drive
from lidfl.runs.server import Server, first_list, rules_of
from lidfl.settings.experiment import Experiment
from lidfl.simulation.simulator import Simulator
from lidfl.types import Ballot, Client
from tests.twin import tiny
from tests.vectors import close, rows

CLIENTS = range(6)


def two_models() -> ModelList:
    return ModelList(rows([0, 0], [10, 10]), ids=(4, 7), parents=((2,), (4,)), ages=(3, 1), next_id=9)


class Fleet:
    """Client j trains model `parents[j]`, or what it is given, and sends (j + 1, 0); jurors choose as told."""

    def __init__(
        self, parents: dict[Client, int] | None = None, choices: dict[Client, Ballot] | None = None
    ) -> None:
        self.parents = parents or {}
        self.choices = choices or {}
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Replies:
        self.asked.append(request)
        match request:
            case Train():
                return [
                    (client, Trained(self.parents.get(client, offer[0]), torch.tensor([client + 1.0, 0.0])))
                    for client, offer in request.offers.items()
                ]
            case Choose():
                return list(self.choices.items())
            case Vote():
                return [
                    (voter, tuple(range(len(request.candidates)))[::-1][: request.ranks])
                    for voter in request.voters
                ]
            case _:
                raise AssertionError("no round of LiD-FL asks that")


def play(spec: str, fleet: Fleet, seed: int = 0, **options: Any) -> Outcome:
    defaults: dict[str, Any] = dict(ranked=True, workers=None, same_parent=True, num_honest=2)
    rules = Rules(resolve_proposals(spec), ranked, **defaults | options)
    return drive(lid_round(two_models(), 5, CLIENTS, default_rng(seed), rules), fleet)


def candidates(fleet: Fleet) -> ModelList:
    vote = fleet.asked[-1]
    assert isinstance(vote, Vote)
    return vote.candidates


def test_several_clients_are_distinct_and_each_trains_a_model_of_its_own_draw() -> None:
    drawn: Counter[tuple[Client, int]] = Counter()
    for seed in range(300):
        fleet = Fleet()
        outcome = play("client", fleet, seed, workers=3, candidates=3, same_parent=False)
        assert isinstance(fleet.asked[0], Train)
        assert len(fleet.asked[0].offers) == 3
        assert len(outcome.record.born) == 3
        drawn.update((client, parent) for client, (parent,) in fleet.asked[0].offers.items())
    assert all(45 < drawn[client, parent] < 110 for client in CLIENTS for parent in (0, 1))


def test_single_clients_are_drawn_from_all_that_trained() -> None:
    outcome = play("client", Fleet(), candidates=2)
    assert len(outcome.record.born) == 2
    assert {len(birth.clients) for birth in outcome.record.born} == {1}


def test_every_group_becomes_a_candidate_if_asked_for() -> None:
    one, all_groups = Fleet(), Fleet()
    assert len(play("meb", one).record.born) == 1
    born = play("meb", all_groups, every_group=True).record.born
    assert sorted(client for birth in born for client in birth.clients) == list(CLIENTS)
    assert len(born) == 3


def test_groups_are_formed_among_those_who_trained_the_same_model() -> None:
    fleet = Fleet(parents={0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1})
    born = play("fedavg", fleet, favourite_parents=True).record.born
    assert [(birth.parents, birth.clients) for birth in born] == [((4,), (0, 2, 4)), ((7,), (1, 3, 5))]
    assert close(candidates(fleet).parameters[2:], rows([3, 0], [14, 10]))


def test_the_mean_of_a_jurors_choice_is_a_candidate_whatever_the_parents() -> None:
    fleet = Fleet(
        parents={0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1}, choices={0: (0, 1), 1: (4,), 2: (), 3: (9,), 4: (1, 1)}
    )
    outcome = play("jurors", fleet, favourite_parents=True, candidates=6)
    choose = fleet.asked[1]
    assert isinstance(choose, Choose)
    assert (choose.ranks, choose.voters) == (2, tuple(CLIENTS))
    assert close(choose.models, rows([1, 0], [12, 10], [3, 0], [14, 10], [5, 0], [16, 10]))
    assert [(birth.parents, birth.clients) for birth in outcome.record.born] == [((4, 7), (0, 1)), ((4,), (4,))]
    assert close(candidates(fleet).parameters[2:], rows([6.5, 5], [5, 0]))
    assert outcome.record.rejected == {"no such model": 1, "wrong shape": 1, "missing": 1}


@pytest.mark.parametrize(("stride", "further"), [(2, ([8, 5], [10, 0])), (3, ([9.5, 5], [15, 0]))])
def test_with_a_stride_each_choice_is_also_proposed_further_along(
    stride: int, further: tuple[list[float], list[float]]
) -> None:
    fleet = Fleet(parents={0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1}, choices={0: (0, 1), 1: (4,)})
    born = play(f"jurors:stride={stride}", fleet, favourite_parents=True, candidates=6).record.born
    assert [birth.clients for birth in born] == [(0, 1), (4,)] * 2
    # the mean (6.5, 5) of models from (0, 0) and (10, 10): three times as far from (5, 5) is (9.5, 5)
    assert close(candidates(fleet).parameters[2:], rows([6.5, 5], [5, 0], *further))


def test_the_average_of_the_list_joins_what_others_propose() -> None:
    fleet = Fleet()
    born = play("fedavg+average", fleet).record.born
    assert [birth.clients for birth in born] == [tuple(CLIENTS), ()]
    assert born[1].parents == (4, 7)
    assert close(candidates(fleet).parameters[-1], torch.tensor([5.0, 5.0]))


def test_equal_candidates_are_proposed_once_and_an_average_of_equals_not_at_all() -> None:
    born = play("fedavg+norm:bound=100", Fleet()).record.born  # the same mean, in two ways
    assert len(born) == 1
    copies = ModelList.initial(torch.tensor([1.0, 2.0]), 2)
    rules = Rules(resolve_proposals("average+client"), ranked, ranked=True)
    outcome = drive(lid_round(copies, 0, CLIENTS, default_rng(0), rules), Fleet())
    assert [len(birth.clients) for birth in outcome.record.born] == [1]


@pytest.mark.parametrize(("third", "is_proposed"), [(1e-6, False), (1e-3, True)])
def test_an_average_that_differs_from_one_model_by_rounding_alone_is_not_proposed(
    third: float, is_proposed: bool
) -> None:
    """A hundred thousandth of how far the models lie apart, which is 1, not of how large they are."""
    models = ModelList.initial(torch.tensor([0.0, 100.0]), 3)
    models.parameters[:, 0] = torch.tensor([-1, 1, third])
    made = average(Gathered(0, models, {}, CLIENTS, default_rng(0), Rules((), ranked)))
    assert [new.parents for new in made] == [(0, 1, 2)] * is_proposed


def test_favourite_parents_are_chosen_by_the_clients_among_all_models() -> None:
    fleet = Fleet()
    play("fedavg", fleet, favourite_parents=True)
    assert isinstance(fleet.asked[0], Train)
    assert fleet.asked[0].offers == dict.fromkeys(CLIENTS, (0, 1))


def test_a_committee_is_drawn_anew_each_round_and_nobody_else_may_vote() -> None:
    drawn: Counter[Client] = Counter()
    for seed in range(200):
        fleet = Fleet()
        play("fedavg", fleet, seed, voters=3)
        vote = fleet.asked[-1]
        assert isinstance(vote, Vote)
        assert len(set(vote.voters)) == 3
        drawn.update(vote.voters)
    assert all(70 < drawn[client] < 130 for client in CLIENTS)


def test_a_committee_may_train_as_well() -> None:
    fleet = Fleet()
    play("fedavg", fleet, workers=4)
    assert isinstance(fleet.asked[0], Train)
    assert len(fleet.asked[0].offers) == 4


def test_an_unknown_proposal_is_named_with_all_that_there_are() -> None:
    with pytest.raises(LidflError, match="unknown proposal 'jurers'; choose from average, client, jurors, "):
        resolve_proposals("rknn+jurers")


def test_the_preset_can_be_changed_setting_by_setting() -> None:
    preset = rules_of(Experiment(method="lidfl-ranked"))
    assert (preset.ranked, preset.favourite_parents, preset.every_group) == (True, True, True)
    changed = rules_of(Experiment(method="lidfl-ranked", parent="uniform", proposal="rknn", groups="one"))
    assert (changed.ranked, changed.favourite_parents, changed.every_group) == (True, False, False)
    assert Experiment(method="lidfl-ranked", proposal="rknn").method_label == "lidfl-ranked+rknn"


# In the simulator.


def rounds(experiment: Experiment) -> tuple[Simulator, list[Outcome]]:
    simulator, server = Simulator.of(experiment), Server(experiment)
    models, outcomes = first_list(experiment, simulator.network.initial()), []
    for round_index in range(experiment.rounds):
        outcomes.append(drive(server.round(models, round_index), simulator.answer))
        models = outcomes[-1].models
    return simulator, outcomes


def test_an_honest_client_trains_the_model_it_would_vote_for_and_a_byzantine_one_the_most_favoured() -> None:
    experiment = tiny(method="lidfl-ranked", rounds=4, num_clients=10)
    simulator, outcomes = rounds(experiment)
    models = outcomes[-1].models
    request = Train(4, models, dict.fromkeys(range(10), tuple(range(len(models)))))
    replies = dict(simulator.answer(request))
    chosen = {client: reply.parent for client, reply in replies.items() if isinstance(reply, Trained)}
    best = simulator.judges.losses(models, simulator.cast.everyone).argmin(1)
    assert all(chosen[client] == best[client] for client in simulator.cast.honest)
    favoured = Counter(chosen[client] for client in simulator.cast.honest)
    assert {favoured[chosen[client]] for client in simulator.cast.byzantine} == {max(favoured.values())}


def test_an_honest_juror_picks_the_models_of_its_lowest_losses() -> None:
    experiment = tiny(method="lidfl-ranked", rounds=1)
    simulator, _ = rounds(experiment)
    start = simulator.network.initial()
    pool = start + torch.from_numpy(default_rng(0).normal(size=(5, len(start)))).float()
    everyone = tuple(range(experiment.num_clients))
    choices = dict(simulator.answer(Choose(0, pool, everyone, ranks=2, known=start[None])))
    for client in simulator.cast.honest:
        losses = [simulator.judges.loss(vector, np.array([client]))[0] for vector in pool]
        assert choices[client] == tuple(np.argsort(losses)[:2].tolist())


def test_a_committee_hears_only_its_own_losses_and_no_model_is_judged_twice_by_a_client() -> None:
    experiment = tiny(method="lidfl-ranked", voters=3, num_clients=9, rounds=5)
    simulator, outcomes = rounds(experiment)
    for model in outcomes[-1].models.ids:
        judges, losses = simulator.judges._losses.known[model]
        assert len(set(judges.tolist())) == len(judges) == len(losses)


def test_the_oracle_averages_the_honest_clients_only() -> None:
    experiment = tiny(method="oracle", attack="sign_flip", rounds=3)
    simulator, outcomes = rounds(experiment)
    assert {outcome.record.born[0].clients for outcome in outcomes} == {tuple(simulator.cast.honest)}


@pytest.mark.parametrize("vote_attack", ["worst", "random", "coordinated", "none"])
def test_the_ranked_method_keeps_a_good_model_under_any_vote_attack(vote_attack: str) -> None:
    experiment = Experiment(method="lidfl-ranked", rounds=12, vote_attack=vote_attack, attack="sign_flip")
    simulator, outcomes = rounds(experiment)
    assert simulator.auditor.accuracies(outcomes[-1].models).mean(0).max() > 0.75
    assert all(len(outcome.models) == experiment.list_size for outcome in outcomes)
