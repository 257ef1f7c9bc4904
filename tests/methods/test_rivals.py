"""Each rival does what its paper says, worked out by hand on problems of one or two parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from lidfl import Experiment, LidflError, RunDirectory, pick, run
from lidfl.cli.registered import REGISTRIES
from lidfl.methods.elections import election
from lidfl.methods.method import METHODS, resolve_method, rounds
from lidfl.methods.proposals import resolve_proposals
from lidfl.methods.rivals.baffle import errors_by_class, looks_poisoned, outlier_factor
from lidfl.methods.rivals.flcert import certified
from lidfl.methods.rivals.fltrust import trust
from lidfl.methods.rivals.optfil import inside_and_outside
from lidfl.methods.rivals.semi_verified import semi_verified_mean
from lidfl.protocol import (
    SERVER,
    Choose,
    ModelList,
    Outcome,
    Replies,
    Request,
    Rules,
    ServerLosses,
    ServerTrains,
    Train,
    Trained,
    Validate,
)
from lidfl.runs.loop import drive
from lidfl.simulation.server_set import draw_rows
from lidfl.simulation.simulator import Simulator
from lidfl.simulation.training import spread
from lidfl.types import Client
from tests.twin import tiny

RIVALS = ["baffle", "basil", "ditto", "fedgreed", "flcert", "fltrust", "ifca", "optfil", "semi_verified", "zeno"]


@dataclass
class Line:
    """Clients and a server on a line: client c wants wishes[c], and sends steps[c] whatever it starts from."""

    steps: Mapping[Client, float]
    wishes: Mapping[Client, float] = field(default_factory=dict)
    server: float = 0.0
    odd: Sequence[Client] = ()
    asked: list[Request] = field(default_factory=list)

    def answer(self, request: Request) -> Replies:
        self.asked.append(request)
        match request:
            case Train():
                return [
                    (client, self.trained(client, request)) for client in request.offers if client in self.steps
                ]
            case Choose():
                return [(voter, (self.nearest(voter, request.models[:, 0].tolist()),)) for voter in request.voters]
            case Validate():
                return [(voter, voter in self.odd) for voter in request.voters]
            case ServerLosses():
                return [(SERVER, (request.models[:, 0] - self.server).abs().double().numpy())]
            case ServerTrains():
                return [(SERVER, torch.tensor([self.server]) - request.model)]
            case _:
                raise AssertionError(request)

    def trained(self, client: Client, request: Train) -> Trained:
        offer = request.offers[client]
        start = offer[self.nearest(client, request.models.parameters[list(offer), 0].tolist())]
        anchored = 0.0
        if request.anchor is not None:  # one step of gradient descent on λ(w − anchor)²/2
            at, anchor = request.models.parameters[[start, request.anchor], 0].tolist()
            anchored = request.pull * (anchor - at)
        return Trained(start, torch.tensor([self.steps[client] + anchored]))

    def nearest(self, client: Client, models: Sequence[float]) -> int:
        return int(np.argmin([abs(model - self.wishes.get(client, 0.0)) for model in models]))


def play(
    spec: str, line: Line, clients: int, honest: int, start: Sequence[float] | None = None, round_index: int = 1
) -> Outcome:
    method = resolve_method(spec)
    models = ModelList.initial(torch.zeros(1), method.length(clients, honest))
    if start is not None:
        models.parameters[:, 0] = torch.tensor(start)
    rules = Rules(resolve_proposals("fedavg"), election.resolve("plurality"), num_honest=honest)
    return drive(method.play(models, round_index, range(clients), default_rng(0), rules), line.answer)


def values(outcome: Outcome) -> list[float]:
    return [round(value, 4) for value in outcome.models.parameters[:, 0].tolist()]


def test_fedgreed_takes_models_in_while_the_loss_falls_and_stops_at_the_first_that_does_not_help() -> None:
    """The server wants 1. Of 0.8, 1.1, 1.4, −3: 1.1 (0.1 off), with 0.8 0.95 (0.05), with 1.4 1.1 (0.1): stop."""
    line = Line({0: -3.0, 1: 1.4, 2: 0.8, 3: 1.1}, server=1.0)
    outcome = play("fedgreed", line, 4, 2)
    assert values(outcome) == [0.95]
    assert outcome.record.born[0].clients == (2, 3)
    assert len([asked for asked in line.asked if isinstance(asked, ServerLosses)]) == 3


def test_fltrust_weighs_updates_of_the_servers_length_by_their_cosine_with_it() -> None:
    """g₀ = (2, 0): (3, 3) has cosine √½ and becomes (√2, √2); (0, 5) and (−1, 0) have no say; (1, 0) all of it."""
    updates = torch.tensor([[3.0, 3.0], [0.0, 5.0], [-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    step, trusted = trust(updates, torch.tensor([2.0, 0.0]))
    half = 0.5**0.5
    np.testing.assert_allclose(trusted, [half, 0, 0, 1, 0], atol=1e-7)
    torch.testing.assert_close(step, torch.tensor([half * 2**0.5 + 2, half * 2**0.5]) / (half + 1))


def test_where_nobody_goes_the_servers_way_fltrust_does_not_step() -> None:
    outcome = play("fltrust", Line({0: -1.0, 1: 0.0}, server=1.0), 2, 1)
    assert values(outcome) == [0]
    assert outcome.record.born == ()


def test_zeno_keeps_as_many_as_are_honest_by_loss_and_length() -> None:
    """The server wants 1: losses 0.1, 0.2, 4. With ρ = 1, 1.1² costs more than 0.8² saves: 0.8 is kept."""
    line = Line({0: 1.1, 1: 0.8, 2: -3.0}, server=1.0)
    assert values(play("zeno", line, 3, 2)) == [0.95]
    assert values(play("zeno", line, 3, 1)) == [1.1]
    assert values(play("zeno:rho=1", line, 3, 1)) == [0.8]


def test_where_updates_differ_most_the_semi_verified_mean_is_the_servers() -> None:
    """Along x clients are at ±9, much farther apart than the server's own; along y they agree well enough."""
    updates = torch.tensor([[9.0, 1.0, 0], [-9.0, 1.0, 0], [9.0, 1.2, 0], [9.0, 0.8, 0]])
    own = torch.tensor([[0.3, 5.0, 0], [0.5, 5.2, 0], [0.4, 4.8, 0]])
    found = semi_verified_mean(updates, own, honest=0.5, slack=4.0)
    torch.testing.assert_close(found, torch.tensor([0.4, 1.0, 0.0]), atol=1e-3, rtol=0)


def test_a_semi_verified_mean_of_clients_that_agree_is_theirs() -> None:
    rng = default_rng(0)
    updates, own = (torch.from_numpy(rng.normal(size=(n, 5), scale=0.1)).float() for n in (9, 6))
    found = semi_verified_mean(updates, own + 3, honest=0.5, slack=20.0)
    torch.testing.assert_close(found, updates.mean(0))


def test_in_ifca_every_model_steps_by_the_updates_of_those_who_like_it_best() -> None:
    line = Line({0: 1.0, 1: 3.0, 2: -1.0, 3: -1.0, 4: -7.0}, wishes={0: 10, 1: 10, 2: -10, 3: -10, 4: -10})
    assert values(play("ifca:clusters=2", line, 5, 5, start=[5, -5])) == [7, -8]
    assert values(play("ifca:clusters=2,rule=cwm", line, 5, 5, start=[5, -5])) == [7, -6]


def test_in_ifcas_first_round_clients_are_dealt_to_models_that_cannot_be_told_apart() -> None:
    line = Line({client: float(client) for client in range(6)})
    outcome = play("ifca:clusters=3", line, 6, 6, round_index=0)
    assert sorted(len(birth.clients) for birth in outcome.record.born) == [2, 2, 2]
    assert len(set(values(outcome))) == 3


def test_attackers_spread_over_clusters_as_honest_clients_do() -> None:
    from collections import Counter

    honest = Counter({0: 6, 2: 3, 5: 1})
    assert Counter(spread(honest, 20, to_all=True)) == {0: 12, 2: 6, 5: 2}
    assert spread(honest, 4, to_all=False) == [0] * 4


def test_on_basils_ring_each_trains_the_best_of_its_predecessors_models() -> None:
    """Three nodes hold two models each. All want 10; node 2 is bad and its model is −5 when node 0 begins.

    Node 0 has −5 and 3 (node 1's), takes 3 and adds 1; node 1 has 4 and −5, makes 5; node 2 takes 5 and makes −95.
    """
    outcome = play("basil", Line({0: 1, 1: 1, 2: -100}, dict.fromkeys(range(3), 10.0)), 3, 2, start=[0, 3, -5])
    assert values(outcome) == [4, 5, -95]
    assert [birth.parents for birth in outcome.record.born] == [(1,), (0,), (1,)]


def test_in_flcert_a_group_is_nobody_elses_business() -> None:
    outcome = play("flcert:groups=3", Line({0: 1, 1: 2, 2: 50, 3: 3, 4: 4, 5: -9}), 6, 3)
    assert values(outcome) == [2, 3, 20.5]
    assert resolve_method("flcert").length(35, 14) == 12


def test_a_certificate_says_how_many_malicious_clients_a_majority_stands() -> None:
    """By brute force: turn so many models to any label, and see whether the majority can change."""
    rng = default_rng(0)
    for _ in range(60):
        votes = rng.integers(0, 3, 7)
        counts = np.bincount(votes, minlength=3)
        (label,), (bound,) = certified(counts[None])
        assert label == counts.argmax()
        assert not any(changes(counts, label, int(bound), to) for to in range(3))
        assert any(changes(counts, label, int(bound) + 1, to) for to in range(3))


def changes(counts: np.ndarray[Any, Any], label: int, bad: int, to: int) -> bool:
    """Whether so many voters for the winner, turned to another label, change it; what they had goes first."""
    turned = counts.copy()
    moved = min(bad, turned[label])
    turned[label] -= moved
    turned[to] += moved
    return bool(turned.argmax() != label)


def test_at_a_malicious_majority_nothing_is_certain(tmp_path: Path) -> None:
    settings = dict(method="flcert:groups=7", model="lr", attack="none", rounds=10, local_steps=10)
    bad = run(tiny(**settings, out=str(tmp_path / "bad")))
    good = run(tiny(**settings, byzantine_fraction=0.15, out=str(tmp_path / "good")))
    assert bad["certified_accuracy"] == 0 < bad["vote_accuracy"]
    assert 0.3 < good["certified_accuracy"] < good["vote_accuracy"]


def test_optfil_finds_the_tightest_ball_and_what_lies_outside_one_of_the_bad() -> None:
    """Two honest of five: of −1 and 1; the bad sit at 8, 8.1, 8.2. The ball of three leaves the honest outside."""
    updates = torch.tensor([[-1.0], [8.0], [1.0], [8.1], [8.2]])
    inside, outside = inside_and_outside(updates, honest=2)
    assert set(inside.tolist()) in ({1, 3}, {3, 4})
    assert outside.tolist() == [0, 2]


@pytest.mark.parametrize(("wishes", "found"), [([0, 0, 0, 9, 9], 0.0), ([0, 0, 9, 9, 9], 8.05)])
def test_in_optfil_the_majority_decides_and_a_lying_majority_too(wishes: list[float], found: float) -> None:
    line = Line({0: -1.0, 1: 8.0, 2: 1.0, 3: 8.1, 4: 8.3}, dict(enumerate(wishes)))
    assert values(play("optfil", line, 5, 2)) == [found]


def test_dittos_own_models_are_drawn_to_the_global_one_as_strongly_as_each_likes_best() -> None:
    """The global model is at 10 and steps by the mean, 0. Own models are at 0 and step by 1 + 10 λ.

    Client 0 wants 6, so λ = 0.5 (0.05, 0.1, 0.5, 1, 2 lead to 1.5, 2, 6, 11, 21); client 1 wants 22, so λ = 2;
    client 2 wants −50, so λ = 0.05, which leads to −2 + 0.5.
    """
    line = Line({0: 1.0, 1: 1.0, 2: -2.0}, wishes={0: 6.0, 1: 22.0, 2: -50.0})
    assert values(play("ditto", line, 3, 3, start=[0, 0, 0, 10])) == [6, 21, -1.5, 10]
    assert values(play("ditto:pull=1", line, 3, 3, start=[0, 0, 0, 10])) == [11, 11, 8, 10]
    assert values(play("ditto:pull=0,rule=cwm", line, 3, 3, start=[0, 0, 0, 10])) == [1, 1, -2, 11]


def test_baffle_keeps_the_old_model_if_enough_validators_find_the_new_one_odd() -> None:
    steps = dict.fromkeys(range(6), 1.0)
    for odd, found in ((range(3), [1.0]), (range(4), [0.0])):
        outcome = play("baffle:validators=6,quorum=4", Line(steps, odd=odd), 6, 4)
        assert values(outcome) == found
        assert outcome.record.rejected == ({} if found == [1.0] else {"new model voted down": 1})
    assert outcome.models.memory is None


def test_baffle_remembers_as_many_accepted_models_as_it_looks_back() -> None:
    method = resolve_method("baffle:lookback=3")
    models = ModelList.initial(torch.zeros(1), 1)
    rules = Rules(resolve_proposals("fedavg"), election.resolve("plurality"))
    line = Line({0: 1.0})
    for round_index in range(6):
        models = drive(method.play(models, round_index, range(1), default_rng(0), rules), line.answer).models
    assert models.memory is not None
    assert models.memory[:, 0].tolist() == [3, 4, 5]
    last = line.asked[-1]
    assert isinstance(last, Validate)
    assert last.models[:, 0].tolist() == [2, 3, 4, 5, 6]


def test_the_outlier_factor_is_scikit_learns() -> None:
    from sklearn.neighbors import LocalOutlierFactor

    rng = default_rng(1)
    for near in (1, 3, 6):
        others, points = rng.normal(size=(12, 4)), 2 * rng.normal(size=(20, 4))
        theirs = -LocalOutlierFactor(n_neighbors=near, novelty=True).fit(others).score_samples(points)
        ours = [outlier_factor(point, others, near) for point in points]
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_validator_finds_a_step_odd_that_is_unlike_those_before_it() -> None:
    rng = default_rng(2)
    usual = np.cumsum(rng.normal(size=(20, 6), scale=0.01), axis=0)
    leap = usual[-1] + np.array([0, 0, 0.9, 0, 0, 0.9])
    assert looks_poisoned(np.vstack([usual, leap]))
    assert not looks_poisoned(np.vstack([usual, usual[-1] + np.diff(usual, axis=0)[:-1].mean(0)]))
    assert not looks_poisoned(np.vstack([usual[:4], leap])), "there is too little to compare with"
    assert not looks_poisoned(np.zeros((12, 6))), "a model that stands still is nothing new"


def test_errors_are_counted_by_what_an_image_is_and_by_what_it_is_taken_for() -> None:
    labels, said = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1])
    assert errors_by_class(labels, said, 3).tolist() == [0.25, 0, 0.25, 0, 0.5, 0]


def test_the_servers_images_are_drawn_alike_or_mostly_of_one_class() -> None:
    labels = np.repeat(np.arange(10), 50)
    alike, biased = (draw_rows(labels, 100, bias, default_rng(0)) for bias in (0.0, 0.6))
    assert len(set(alike.tolist())) == len(set(biased.tolist())) == 100
    assert np.bincount(labels[alike]).max() < 25
    assert np.bincount(labels[biased]).max() == 50, "there are no more of it"
    assert np.bincount(labels[draw_rows(labels, 60, 0.5, default_rng(0))]).max() == 30


def test_the_server_holds_as_many_images_as_asked_or_as_a_client_has() -> None:
    held = [Simulator.of(tiny(method="fltrust", server_samples=size)).server_set.held for size in (40, 0)]
    a_client = Simulator.of(tiny()).data.validation.sizes.mean()
    assert [len(labels) for _, labels in held] == [40, round(a_client)]


@pytest.mark.parametrize(
    "spec", ["baffle:validators=7", "fedgreed", "fltrust", "optfil", "zeno", "ifca", "flcert:groups=1"]
)
def test_who_is_called_what_does_not_matter(spec: str) -> None:
    """The same updates from other clients lead to the same models, but for rounding."""
    found: list[torch.Tensor] = []
    steps = default_rng(3).normal(size=7)
    for order in (range(7), [3, 1, 6, 0, 5, 2, 4]):
        line = Line({client: float(steps[place]) for client, place in enumerate(order)}, server=0.7)
        start = [0.0] * resolve_method(spec).length(7, 3)
        found.append(play(spec, line, 7, 3, start=start).models.parameters)
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("method", [*RIVALS, "ditto:pull=0.5,rule=nnm|trimmed_mean"])
def test_a_resumed_rival_is_an_uninterrupted_one(method: str, tmp_path: Path) -> None:
    settings = dict(method=method, model="lr", attack="sign_flip", local_steps=2, checkpoint_every=3)
    whole, parts = (tiny(**settings, rounds=7, out=str(tmp_path / name)) for name in ("whole", "parts"))
    expected = run(whole)
    run(parts.with_settings(rounds=3))
    found = run(parts, resume=True)
    assert found["deployed_accuracy"] == expected["deployed_accuracy"]
    one, other = (RunDirectory(e.out).final_state().models for e in (whole, parts))
    assert torch.equal(one.parameters, other.parameters)
    assert (one.memory is None) == (other.memory is None)
    if one.memory is not None and other.memory is not None:
        assert torch.equal(one.memory, other.memory)


@pytest.mark.parametrize("method", ["ditto", "basil"])
def test_who_has_a_model_of_its_own_deploys_it(method: str, tmp_path: Path) -> None:
    experiment = tiny(method=method, model="lr", attack="sign_flip", rounds=3, out=str(tmp_path / "run"))
    summary = run(experiment)
    simulator, models = Simulator.of(experiment), RunDirectory(experiment.out).final_state().models
    own = [simulator.judges.accuracy(models.parameters[c], np.array([c]))[0] for c in simulator.cast.honest]
    assert summary["deployed_accuracy"] == pytest.approx(np.mean(own))
    assert pick(experiment.out, client=2).ids == (models.ids[2],)


def better(method: str, tmp_path: Path, **settings: Any) -> float:
    return float(
        run(tiny(method=method, model="lr", rounds=15, out=str(tmp_path / "run"), **settings))["deployed_accuracy"]
    )


@pytest.mark.parametrize("method", ["basil", "fedgreed", "zeno", "fltrust", "semi_verified"])
def test_own_or_clean_data_outlives_a_majority(method: str, tmp_path: Path) -> None:
    assert better(method, tmp_path, attack="sign_flip", local_steps=10) > 0.7


@pytest.mark.parametrize("method", ["baffle", "ifca"])
def test_what_goes_by_a_majority_falls_with_it(method: str, tmp_path: Path) -> None:
    assert better(method, tmp_path, attack="sign_flip", local_steps=10) < 0.3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(method="ifca:cluster=3"), "method 'ifca' has no option 'cluster'; it takes clusters, rule"),
        (dict(method="ditto:rule=krumm"), "unknown aggregator 'krumm'"),
        (dict(method="lidfl:q=3"), "method 'lidfl' takes no options"),
        (dict(method="ifca:clusters=-1"), "clusters must be 0 (as many as LiD-FL has models) or more, not -1"),
        (dict(method="baffle:rule="), "unknown aggregator ''"),
        (dict(method="ditto:rule=foolsgold:memory=true"), "foolsgold:memory=true works alone"),
        (dict(method="lidfl", proposal="foolsgold:memory=true"), "foolsgold:memory=true works alone"),
        (dict(method="nnm|foolsgold:memory=true"), "foolsgold:memory=true works alone"),
        (dict(method="zeno:rho=nan"), "option 'rho' of method 'zeno' must be a finite number, not nan"),
        (dict(method="flcert:groups=-2"), "groups must be 0 (groups of three) or more, not -2"),
        (dict(method="lidfl", server_samples=50), "server_samples goes with fltrust, fedgreed, zeno"),
        (dict(method="zeno", server_samples=-1), "server_samples must be 0"),
        (dict(method="zeno", server_bias=2.0), "server_bias must be in"),
        (dict(method="zeno", election="ranked"), "election goes with method = lidfl; leave it out with zeno"),
    ],
)
def test_a_slip_is_named_before_round_one(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LidflError) as error:
        Experiment.of(settings)
    assert message in str(error.value)


def test_an_inner_rule_beyond_its_range_says_so() -> None:
    (caution,) = Experiment(method="ditto:rule=cwm", byzantine_fraction=0.6).cautions
    assert caution.startswith("cwm is made for f < n/2")


def test_real_nodes_refuse_what_only_a_simulation_has() -> None:
    server = pytest.importorskip("lidfl.flower.server")
    check: Callable[[Experiment, object], None] = server.check_what_nodes_can
    with pytest.raises(LidflError, match="fltrust needs clean images at the server: only a simulation has that"):
        check(Experiment(method="fltrust"), server.Control())
    check(Experiment(method="ifca:clusters=3"), server.Control())


def test_every_method_is_listed_with_its_options() -> None:
    assert rounds in REGISTRIES
    listed = {name: (options, told) for name, options, told in rounds.describe()}
    assert listed.keys() == METHODS.keys()
    assert listed["ifca"][0] == "clusters=0, rule=fedavg"
    assert all(told.endswith(".") and len(told) < 120 for _, told in listed.values())


@pytest.mark.parametrize("spec", ["fedgreed", "fltrust", "optfil", "zeno"])
def test_a_rivals_round_in_which_nobody_answers_is_played_again_and_one_of_useless_answers_is_over(
    spec: str,
) -> None:
    silent = play(spec, Line({}), 3, 2)
    useless = play(spec, Line(dict.fromkeys(range(3), float("nan"))), 3, 2)
    assert (silent.played, useless.played) == (False, True)
    assert values(silent) == values(useless) == [0]
    assert silent.record.rejected == {"missing": 3}
    assert useless.record.rejected == {"not finite": 3}
    assert silent.record.born == useless.record.born == ()


def test_training_alone_is_asked_for_as_what_nobody_else_will_use() -> None:
    line = Line({0: 1.0, 1: -1.0})
    play("local", line, 2, 1)
    assert [asked.alone for asked in line.asked if isinstance(asked, Train)] == [True]
    assert [len(asked.known) for asked in line.asked if isinstance(asked, Choose)] == [0, 0], "none is too far"
    together = Line({0: 1.0, 1: -1.0})
    play("optfil", together, 2, 1)
    assert [asked.alone for asked in together.asked if isinstance(asked, Train)] == [False]


def test_where_nobody_is_bad_optfil_finds_everyone_inside_and_outside() -> None:
    inside, outside = inside_and_outside(torch.tensor([[0.0], [1.0], [5.0]]), honest=3)
    assert inside.tolist() == outside.tolist() == [0, 1, 2]
