"""Pre-aggregators compose with any rule, and a rule beyond its range says what no longer holds."""

from pathlib import Path

import pytest
import torch
from numpy.random import default_rng

import lidfl
from lidfl import Experiment, LidflError
from lidfl.methods.aggregators import aggregator, krum, means_and_members
from lidfl.methods.aggregators.limits import LIMITS, tolerable
from lidfl.methods.method import resolve_method
from lidfl.methods.pipelines import resolve_pipeline
from lidfl.methods.preaggregators import preaggregator
from lidfl.methods.proposals import parts_of, resolve_proposals
from lidfl.settings.checks import refuse_cautions
from lidfl.types import Parameters, Updates
from tests.command import lidfl_here
from tests.vectors import close, normal, on_a_line


def only(spec: str, updates: Updates, num_honest: int) -> tuple[Parameters, list[int]]:
    """The one candidate of a pipeline, and its members."""
    ((vector, members),) = resolve_pipeline(spec).candidates(updates, num_honest=num_honest, rng=default_rng(0))
    return vector, members.tolist()


def test_parts_are_applied_from_left_to_right() -> None:
    # f = 1. Means of the two nearest: 0.5, 0.5, 6; the longest is clipped to the next, 0.5; their median.
    assert only("nnm|arc|cwm", on_a_line(0, 1, 11), 2)[0].tolist() == [0.5]
    # Clipped to 2 first: 0, 1, 2, of which the two nearest have 0.5, 0.5 (ties to the first), 1.5.
    assert only("clip:radius=2|nnm|fedavg", on_a_line(0, 1, 11), 2)[0].item() == pytest.approx(2.5 / 3)


@pytest.mark.parametrize("rule", sorted(aggregator))
def test_without_pre_aggregators_a_pipeline_is_its_rule_to_the_bit(rule: str) -> None:
    updates = normal(7, 5, 1)
    plain = means_and_members(aggregator.resolve(rule)(updates, num_honest=3, rng=default_rng(2)), updates)
    piped = resolve_pipeline(rule).candidates(updates, num_honest=3, rng=default_rng(2))
    assert [(v.tolist(), m.tolist()) for v, m in piped] == [(v.tolist(), m.tolist()) for v, m in plain]


@pytest.mark.parametrize("rule", sorted(aggregator))
@pytest.mark.parametrize("step", [*preaggregator, "nnm|bucketing", "arc|nnm"])
def test_every_pre_aggregator_goes_before_every_rule(step: str, rule: str) -> None:
    updates = torch.cat([normal(7, 5, 1), torch.full((1, 5), float("nan"))])
    before = updates.clone()
    found = resolve_pipeline(f"{step}|{rule}").candidates(updates, num_honest=5, rng=default_rng(2))
    assert all(vector.isfinite().all() for vector, _ in found)
    assert sorted({int(row) for _, members in found for row in members}) == list(range(7)), "all but the last count"
    assert torch.equal(updates.nan_to_num(7), before.nan_to_num(7))


def test_the_members_of_a_bucket_are_those_who_went_into_it() -> None:
    updates = normal(6, 4, 3)
    found = resolve_pipeline("bucketing:size=2|rknn").candidates(updates, num_honest=5, rng=default_rng(1))
    for vector, members in found:
        assert len(members) % 2 == 0
        assert close(vector, updates[members].mean(0))


def test_buckets_hold_as_many_bad_ones_as_there_are_bad_updates() -> None:
    # Of 8 updates 6 are good; of 4 buckets then 2 are, and Krum counts on one neighbour.
    updates = normal(8, 3, 1)
    bucket = default_rng(5).permutation(8)
    means = torch.stack([updates[bucket[i : i + 2]].mean(0) for i in range(0, 8, 2)])
    ((vector, _),) = resolve_pipeline("bucketing|krum").candidates(updates, num_honest=6, rng=default_rng(5))
    assert close(vector, krum(means, num_honest=2))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nnm", r"'nnm' goes before an aggregator; write nnm\|krum, or another"),
        ("nnm|", "unknown aggregator ''; choose from"),
        ("nm|krum", "unknown pre-aggregator 'nm'; choose from arc, bucketing, clip, nnm"),
        ("krum|nnm|cwm", "unknown pre-aggregator 'krum'"),
        ("nnm|bucketing:sise=2|krum", "pre-aggregator 'bucketing' has no option 'sise'; it takes size"),
    ],
)
def test_a_slip_in_a_pipeline_is_named(spec: str, message: str) -> None:
    for resolve in (resolve_method, resolve_proposals):
        with pytest.raises(LidflError, match=message):
            resolve(spec)


def test_pipelines_propose_beside_others() -> None:
    assert parts_of("jurors:stride=2+nnm|bucketing:size=2|krum+average") == [
        "jurors:stride=2",
        "nnm|bucketing:size=2|krum",
        "average",
    ]


@pytest.mark.parametrize("proposal", ["nnm|bucketing:size=2|krum", "mda+nnm|rknn+bulyan+signguard+caf"])
def test_rules_of_the_field_propose_to_voters(tmp_path: Path, proposal: str) -> None:
    settings = dict(proposal=proposal, groups="all", num_clients=9, rounds=3, local_steps=2)
    summary = lidfl.run(Experiment.of(dict(method="lidfl-ranked", out=str(tmp_path / "run")) | settings))
    assert summary["deployed_accuracy"] > 0


# Ranges.


@pytest.mark.parametrize(
    ("rule", "n", "most"), [("trimmed_mean", 7, 3), ("trimmed_mean", 8, 3), ("multi_krum", 7, 2), ("bulyan", 11, 2)]
)
def test_f_is_clipped_to_what_a_rule_is_made_for(rule: str, n: int, most: int) -> None:
    assert tolerable(rule, n, num_honest=1, f=-1) == most
    assert tolerable(rule, n, num_honest=n - 1, f=-1) == 1
    assert tolerable(rule, n, num_honest=n - 1, f=0) == 0
    updates = normal(n, 4, 1)
    clipped, exact = (aggregator.resolve(f"{rule}:f={f}")(updates, num_honest=1) for f in (most + 5, most))
    assert torch.equal(torch.as_tensor(clipped), torch.as_tensor(exact))


def test_all_limits_are_of_rules_that_exist() -> None:
    assert set(LIMITS) <= {*aggregator, *preaggregator}


@pytest.mark.parametrize("method", ["trimmed_mean", "nnm|trimmed_mean", "cwm", "flame", "bulyan", "nnm|fedavg"])
def test_a_method_beyond_its_range_is_told_once_and_refused_if_strict(method: str) -> None:
    beyond = Experiment(method=method, byzantine_fraction=0.6)
    (told,) = beyond.cautions
    assert "is no longer guaranteed" in told
    with pytest.raises(LidflError, match=r"no longer guaranteed.*\(refused by strict=True\)"):
        refuse_cautions(beyond)
    within = Experiment(method=method, byzantine_fraction=0.15)
    assert within.cautions == []
    refuse_cautions(within)


def test_what_voters_judge_needs_no_guarantee() -> None:
    assert Experiment(proposal="nnm|trimmed_mean", byzantine_fraction=0.8).cautions == []
    assert Experiment(method="oracle", byzantine_fraction=0.8).cautions == []


def test_the_caution_names_the_range_the_numbers_and_the_promise() -> None:
    assert Experiment(method="trimmed_mean", num_clients=10).cautions == [
        "trimmed_mean is made for f < n/2, of 10 updates at most 4, and 6 may be bad here: that each coordinate "
        "stays within the honest values is no longer guaranteed; it runs with f = 4; lidfl and lidfl-ranked are "
        "made for a bad majority"
    ]


def test_strict_is_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lidfl_here("run", "--method", "cwm", "--strict", "--out", tmp_path / "run") != 0
    assert "refused by --strict" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "cases"),
    [
        (dict(method="mda", num_clients=100), "83,316,385"),  # f is clipped to 49
        (dict(method="smea", num_clients=20), "167,960"),  # 20 over 9
        (dict(proposal="mda+average", num_clients=100), "83,316,385"),
        (dict(method="nnm|smea", num_clients=20), "167,960"),
    ],
)
def test_an_endless_search_is_refused_with_its_number_before_round_one(
    settings: dict[str, object], cases: str
) -> None:
    with pytest.raises(LidflError, match=f"would have to look at up to {cases} cases"):
        Experiment.of(settings)
    assert Experiment(method="mda", num_clients=35).cautions, "branch and bound goes far beyond all subsets"
    Experiment(method="bucketing:size=2|smea", num_clients=20)
