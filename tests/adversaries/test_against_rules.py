"""The field's attacks send what their papers say, and go as far as they may and no farther."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy.stats import norm as normal_distribution

import lidfl
import tests.answers
from lidfl import Experiment, LidflError, RunDirectory
from lidfl.adversaries.against_rules import (
    alie,
    fang_krum,
    fang_trim,
    harm,
    ipm,
    mimic,
    min_max,
    min_sum,
    opt_alie,
    opt_ipm,
    pga,
    supporters_z,
)
from lidfl.adversaries.broken_updates import inf, nan, noise, zero
from lidfl.methods.aggregators import cwm, krum
from lidfl.methods.aggregators.coordinates import trimmed_mean
from lidfl.types import Parameters, Updates
from tests.vectors import close, normal, rows

CASES = json.loads((Path(tests.answers.__file__).parent / "byzfl.json").read_text())
crowds = st.builds(
    lambda n, dim, seed: 0.3 + normal(n, dim, seed), st.integers(2, 9), st.integers(1, 6), st.integers(0, 999)
)
directions = st.sampled_from(["unit", "sign", "std"])
few = settings(max_examples=40)


@pytest.mark.parametrize("case", [case for case in CASES if "alie" in case["answers"]])
def test_alie_and_ipm_are_byzfls(case: dict[str, object]) -> None:
    honest, answers = torch.tensor(case["updates"]), case["answers"]
    assert isinstance(answers, dict)
    assert close(ipm(honest, epsilon=2.0), torch.tensor(answers["ipm"]), 1e-4)
    # ByzFL adds tau deviations of a sample, with n − 1.
    z = -1.5 * (len(honest) / (len(honest) - 1)) ** 0.5
    torch.testing.assert_close(alie(honest, 1, z=z), torch.tensor(answers["alie"]), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("num_honest", "num_byzantine"), [(40, 10), (38, 12), (26, 24), (9, 2)])
def test_alies_z_leaves_as_many_honest_clients_farther_out_as_are_needed_for_a_majority(
    num_honest: int, num_byzantine: int
) -> None:
    n = num_honest + num_byzantine
    farther_out = num_honest * normal_distribution.sf(supporters_z(num_honest, num_byzantine))
    assert farther_out + num_byzantine == pytest.approx(n // 2 + 1)


@pytest.mark.parametrize(("num_honest", "num_byzantine"), [(14, 21), (7, 28), (2, 40)])
def test_a_majority_of_alie_needs_nobody_and_stays_within_all_but_one(num_honest: int, num_byzantine: int) -> None:
    assert num_honest * normal_distribution.sf(supporters_z(num_honest, num_byzantine)) == pytest.approx(1)
    assert supporters_z(1, num_byzantine) == 0


@given(honest=crowds, direction=directions)
@few
def test_min_max_is_as_far_from_honest_updates_as_two_of_them_are_and_no_farther(
    honest: Updates, direction: str
) -> None:
    diameter = torch.cdist(honest.double(), honest.double()).max()
    farthest = (min_max(honest, direction=direction).double() - honest.double()).norm(dim=1).max()
    assert farthest <= diameter * (1 + 1e-6)
    assert farthest >= diameter * (1 - 1e-4)


@given(honest=crowds, direction=directions)
@few
def test_min_sum_reaches_the_largest_sum_of_squared_distances_and_no_more(honest: Updates, direction: str) -> None:
    largest = torch.cdist(honest.double(), honest.double()).square().sum(1).max()
    total = (min_sum(honest, direction=direction).double() - honest.double()).square().sum()
    assert total <= largest * (1 + 1e-6)
    assert total >= largest * (1 - 1e-3)


def test_min_max_goes_against_the_mean_in_the_direction_that_is_named() -> None:
    honest = 1 + 0.1 * normal(6, 5, 1)
    away = {name: min_max(honest, direction=name) - honest.mean(0) for name in ("unit", "sign", "std")}
    assert close(away["unit"] / away["unit"].norm(), -honest.mean(0) / honest.mean(0).norm())
    assert close(away["sign"] / away["sign"].abs().max(), -torch.ones(5))
    assert close(away["std"] / away["std"].norm(), -honest.std(0) / honest.std(0).norm())
    with pytest.raises(LidflError, match="unknown direction 'up'; choose from unit, sign, std"):
        min_max(honest, direction="up")


def test_mimic_sends_the_honest_update_farthest_along_the_largest_variance() -> None:
    honest = rows([1, 0.1], [2, -0.1], [-9, 0], [3, 0.2], [0, -0.2])
    assert mimic(honest).tolist() == [-9, 0]
    assert mimic(honest, victim=3).tolist() == honest[3].tolist()
    assert mimic(honest, victim=30).tolist() == honest[4].tolist()


@pytest.mark.parametrize(("num_honest", "num_byzantine"), [(15, 5), (8, 7), (5, 9)])
def test_krum_picks_what_fang_sends(num_honest: int, num_byzantine: int) -> None:
    honest = 0.02 + 0.2 * normal(num_honest, 30, 1)
    forged = fang_krum(honest, num_byzantine)
    assert torch.equal(forged.sign(), -honest.mean(0).sign())
    everyone = torch.cat([honest, forged.expand(num_byzantine, -1)])
    assert torch.equal(krum(everyone, num_honest=num_honest), forged)
    if num_byzantine + 1 < num_honest:  # else they are all the neighbours that Krum counts
        stronger = torch.cat([honest, (4 * forged).expand(num_byzantine, -1)])
        assert not torch.equal(krum(stronger, num_honest=num_honest), 4 * forged), (
            "it is nearly as strong as can be"
        )


@given(honest=crowds, seed=st.integers(0, 99))
@few
def test_fang_trim_lies_just_beyond_the_honest_range_against_the_mean(honest: Updates, seed: int) -> None:
    forged = fang_trim(honest, 4, default_rng(seed))
    assert forged.shape == (4, honest.shape[1])
    low, high, rises = honest.amin(0), honest.amax(0), honest.mean(0) > 0
    assert (forged <= low + 1e-6)[:, rises].all()
    assert (forged >= high - 1e-6)[:, ~rises].all()
    reach = torch.maximum(low.abs(), high.abs())
    assert ((forged - torch.where(rises, low, high)).abs() <= reach + 1e-6).all()


def test_fang_trim_moves_a_trimmed_mean_against_the_honest_one_more_than_noise_does() -> None:
    honest = 0.1 + normal(12, 200, 1)
    everyone = torch.cat([honest, fang_trim(honest, 5, default_rng(1))])
    moved = trimmed_mean(everyone, num_honest=12) - honest.mean(0)
    assert (moved * honest.mean(0).sign() < 0).float().mean() > 0.95


@pytest.mark.parametrize("rule", [lambda u: cwm(u), lambda u: trimmed_mean(u, num_honest=8)])
@pytest.mark.parametrize("attack", [opt_alie, opt_ipm, pga])
def test_optimised_attacks_harm_at_least_as_much_as_any_fixed_strength(attack, rule) -> None:  # type: ignore[no-untyped-def]
    honest = 0.3 + normal(8, 20, 1)
    worst = harm(attack(honest, 3, rule), honest, 3, rule)
    fixed = {
        opt_alie: [alie(honest, 3), alie(honest, 3, z=1.0)],
        opt_ipm: [ipm(honest, epsilon=e) for e in (0.5, 1, 4)],
    }
    for forged in fixed.get(attack, [honest.mean(0) - honest.mean(0) / honest.mean(0).norm()]):
        assert worst >= harm(forged, honest, 3, rule) * (1 - 1e-3)


def test_an_optimised_attack_does_not_count_on_an_outcome_that_is_not_finite() -> None:
    def fragile(updates: Updates) -> Parameters:
        return updates.mean(0) if updates.abs().max() < 5 else torch.full_like(updates[0], torch.inf)

    assert opt_ipm(torch.ones(4, 3), 2, fragile).abs().max() < 5


def test_noise_has_the_length_that_is_asked_for_and_zero_none() -> None:
    sent = noise(torch.zeros(3, 500), default_rng(1), length=7.0)
    assert close(sent.norm(dim=1), torch.full((3,), 7.0))
    assert abs(float(torch.nn.functional.cosine_similarity(sent[0], sent[1], dim=0))) < 0.2
    assert zero(torch.ones(4)).tolist() == [0, 0, 0, 0]
    assert nan(torch.ones(2)).isnan().all()
    assert inf(torch.ones(2)).isposinf().all()


@pytest.mark.parametrize("attack", [min_max, min_sum, mimic, lambda h: fang_krum(h, 3), lambda h: alie(h, 3)])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_degenerate_honest_updates_stop_no_attack(attack, value: float) -> None:  # type: ignore[no-untyped-def]
    assert attack(torch.full((4, 3), value)).shape == (3,)
    assert attack(torch.ones(1, 3)).shape == (3,)


@pytest.mark.parametrize("attack", ["nan", "inf"])
def test_what_is_no_number_is_counted_and_not_used(tmp_path: Path, attack: str) -> None:
    experiment = Experiment(method="fedavg", attack=attack, rounds=5, out=str(tmp_path / "run"))
    assert lidfl.run(experiment)["deployed_accuracy"] > 0.5
    assert all(round_.rejected == {"not finite": 12} for round_ in RunDirectory(experiment.out).records())


@pytest.mark.parametrize("spec", ["opt_alie", "opt_ipm", "pga:largest=3", "min_max:direction=unit", "fang_krum"])
@pytest.mark.parametrize("method", ["nnm|trimmed_mean", "rknn", "lidfl", "lidfl-ranked"])
def test_attacks_meet_every_kind_of_method(tmp_path: Path, spec: str, method: str) -> None:
    settings = dict(attack=spec, method=method, rounds=2, local_steps=1, num_clients=8, out=str(tmp_path / "run"))
    assert np.isfinite(lidfl.run(Experiment.of(settings))["test_accuracy"])
