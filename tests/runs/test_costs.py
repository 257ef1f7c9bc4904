"""What a run costs is counted where requests meet replies, and by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lidfl import Experiment, run
from lidfl.protocol import SERVER, Choose, ModelList, Proposed, ServerLosses, ServerTrains, Train, Validate, Vote
from lidfl.runs.costs import Costs, Tally, costs_of, run_costs
from lidfl.runs.record import Spent
from tests.records import round_record

FIVE = Experiment(num_clients=5, local_steps=10, rounds=2)
LIST = ModelList.initial(torch.zeros(3), 2)
CANDIDATES = LIST.with_new([Proposed((0,), torch.ones(3), (1,)), Proposed((1,), torch.ones(3), (2,))])
BALLOT = (0,)


def spent(experiment: Experiment, *exchanges: tuple[object, list[int]]) -> Spent:
    """What a round costs in which these clients answer these requests."""
    tally, answers = Tally(experiment), iter([clients for _, clients in exchanges])
    answer = tally.counting(lambda _: [(client, BALLOT) for client in next(answers)])
    for request, clients in exchanges:
        assert [client for client, _ in answer(request)] == clients  # type: ignore[arg-type]
    return tally.spent


def rival(method: str) -> Experiment:
    """Another method with five clients."""
    return Experiment(method=method, num_clients=5, local_steps=10)


def test_where_everyone_votes_only_new_candidates_travel() -> None:
    """One client trains 10 steps and sends an update; two candidates go to five voters."""
    train, vote = Train(0, LIST, {3: (1,)}), Vote(0, CANDIDATES, tuple(range(5)), seats=2)
    assert spent(FIVE, (train, [3]), (vote, [0, 1, 2, 3, 4])) == Spent(10, 2 * 5, 1, 5)


def test_a_committee_is_sent_what_it_lacks() -> None:
    """Client 3 was offered both models of the list to train from, so as a voter it lacks two of four."""
    train, vote = Train(0, LIST, {3: (0, 1), 4: (0,)}), Vote(0, CANDIDATES, (2, 3), seats=2)
    costs = spent(FIVE.with_settings(voters=2), (train, [3, 4]), (vote, [2, 3]))
    assert costs == Spent(20, (2 + 1) + (4 + 2), 2, 2)


def test_a_juror_is_sent_what_others_have_trained() -> None:
    train = Train(0, LIST, dict.fromkeys(range(4), (0,)))
    choose = Choose(0, torch.zeros(4, 3), (1, 4), 2, LIST.parameters)
    assert spent(FIVE, (train, [0, 1, 2, 3]), (choose, [1, 4])) == Spent(40, 3 + 4, 4, 2)


def test_who_is_silent_costs_nothing_and_who_answers_twice_or_unasked_counts_once_or_not_at_all() -> None:
    train = Train(0, LIST, {0: (0,), 1: (0,)})
    one_model = FIVE.with_settings(method="fedavg", list_size=1)
    assert spent(one_model, (train, [1, 1, 4])) == Spent(10, 1, 1, 0)


def test_what_a_client_trains_for_itself_stays_with_it() -> None:
    alone = Train(0, LIST, {0: (0,), 1: (1,)}, alone=True)
    own = Choose(0, torch.zeros(2, 3), (1,), 1, LIST.parameters[:0])
    assert spent(rival("ditto"), (alone, [0, 1]), (own, [1])) == Spent(20)


def test_validators_lack_the_new_model_and_the_servers_own_work_costs_no_client() -> None:
    baffle = rival("baffle")
    assert spent(baffle, (Validate(0, torch.zeros(7, 3), (1, 2)), [1, 2])) == Spent(0, 2, 0, 2)
    requests = (ServerTrains(0, torch.zeros(3)), [SERVER]), (ServerLosses(0, torch.zeros(4, 3)), [SERVER])
    assert spent(baffle, *requests) == Spent()


def test_two_models_made_of_what_all_have_trained_go_to_everyone_whole() -> None:
    train = Train(0, LIST, dict.fromkeys(range(5), (0,)))
    choose = Choose(0, torch.zeros(2, 3), tuple(range(5)), 1, LIST.parameters)
    everyone = list(range(5))
    costs = spent(rival("optfil"), (train, everyone), (choose, everyone))
    assert costs == Spent(50, 5 + 2 * 5, 5, 5)


def test_steps_that_voters_take_before_they_judge_count() -> None:
    vote = Vote(0, CANDIDATES, (0, 1), seats=2)
    assert spent(FIVE.with_settings(lookahead=3), (vote, [0, 1])).steps == 2 * 4 * 3


def test_a_run_adds_up_its_rounds_in_bytes_of_its_model_or_of_its_network() -> None:
    records = [round_record(r, spent=Spent(10, 4, 1, 5)) for r in range(3)]
    assert run_costs(records, parameters=100) == Costs(30, 3 * 4 * 400, 3 * 400, 15)
    measured = [replace(record, traffic={"sent": 7, "received": 2}) for record in records]
    assert run_costs(measured, parameters=100) == Costs(30, 21, 6, 15)
    assert run_costs([*records, round_record(3)], parameters=100) is None, "an earlier version did not count"


@pytest.mark.parametrize("method", ["lidfl", "lidfl-ranked", "lidfl+rknn", "fedavg", "oracle", "local"])
def test_what_follows_from_settings_is_what_was_counted(method: str, tmp_path: Path) -> None:
    """So the costs of runs from before they were counted can be told."""
    name, _, proposal = method.partition("+")
    own = {"proposal": proposal} if proposal else {}
    experiment = Experiment(method=name, rounds=3, out=str(tmp_path / "run"), **own)  # type: ignore[arg-type]
    summary = run(experiment)
    counted = costs_of(experiment, dict(summary))
    size = summary["parameters"]
    before = {key: summary[key] for key in ("candidates_per_round", "diverged_at")}
    assert counted == costs_of(experiment, before, size)
    assert size == 64 * 10 + 10
    known = costs_of(experiment, before)
    assert known is not None
    assert known.bytes_sent is None


def test_by_hand_for_the_papers_protocol_and_the_oracle(tmp_path: Path) -> None:
    """20 clients, 8 honest, 10 steps, 650 numbers of 4 bytes."""
    paper = run(Experiment(rounds=3, out=str(tmp_path / "paper")))
    assert [paper[k] for k in ("gradient_steps", "bytes_down", "bytes_up", "ballots")] == [
        3 * 10,
        3 * 20 * 2600,
        3 * 2600,
        3 * 20,
    ]
    oracle = run(Experiment(method="oracle", rounds=3, out=str(tmp_path / "oracle")))
    assert [oracle[k] for k in ("gradient_steps", "bytes_down", "bytes_up", "ballots")] == [
        3 * 8 * 10,
        3 * 8 * 2600,
        3 * 8 * 2600,
        0,
    ]


def test_what_deployment_trains_is_told(tmp_path: Path) -> None:
    """Eight honest clients tune in ten parts of ten steps; who takes the best as it is trains nothing."""
    tuned = run(Experiment(rounds=1, deploy="tuned", out=str(tmp_path / "tuned")))
    assert tuned["deployment_steps"] == 8 * 10 * 10
    assert run(Experiment(rounds=1, out=str(tmp_path / "best")))["deployment_steps"] == 0


def test_what_cannot_follow_from_settings_is_not_guessed() -> None:
    assert costs_of(FIVE.with_settings(voters=3), {"candidates_per_round": 1}) is None
    assert costs_of(FIVE.with_settings(availability=0.7), {"candidates_per_round": 1}) is None
