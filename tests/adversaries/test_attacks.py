"""Attacks send what the paper's appendix B.2 says they send."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from lidfl.adversaries.attacks import attack, empire, gauss, label_flip, lie, none, omniscient, ratchet, sign_flip
from lidfl.adversaries.backdoors import Poison
from lidfl.methods.aggregators import fedavg
from lidfl.types import Parameters, Updates
from tests.vectors import close, normal, rows, scattered

HONEST = rows([1, 2], [3, 6])

quick = settings(max_examples=40)
attackers = st.integers(1, 9)


def mean_of_all(honest: Updates, sent: Parameters, num_byzantine: int) -> Parameters:
    """What FedAvg makes of the honest updates when all Byzantine clients send the same."""
    return fedavg(torch.cat([honest, sent.expand(num_byzantine, -1)]))


# No attack, sign flip, label flip.


def test_without_an_attack_byzantine_clients_send_their_update() -> None:
    assert torch.equal(none(HONEST), HONEST)


def test_sign_flip_sends_the_opposite() -> None:
    assert sign_flip(rows([1, -2], [0, 6])).tolist() == [[-1, 2], [0, -6]]


def test_label_flip_counts_classes_from_the_other_end() -> None:
    assert label_flip(torch.tensor([0, 1, 8, 9]), 10).tolist() == [9, 8, 1, 0]


@given(num_classes=st.integers(1, 100))
@quick
def test_label_flip_twice_changes_no_label(num_classes: int) -> None:
    labels = torch.arange(num_classes)
    flipped = label_flip(labels, num_classes)
    assert sorted(flipped.tolist()) == labels.tolist()
    assert torch.equal(label_flip(flipped, num_classes), labels)


# Gauss.


def test_gauss_sends_noise_as_spread_as_the_entries_of_ones_own_update() -> None:
    scale, offset = torch.tensor([[0.01], [1.0], [30.0]]), torch.tensor([[5.0], [0.0], [-100.0]])
    own = scale * normal(3, 200_000, 0) + offset
    sent = gauss(own, default_rng(1))
    assert close(sent.std(1, correction=0) / own.std(1, correction=0), torch.ones(3), 0.01)
    assert close(sent.mean(1) / scale[:, 0], torch.zeros(3), 0.01)


def test_gauss_scales_each_row_of_noise_by_the_population_deviation() -> None:
    # The entries 1, 3 deviate by 1 from their mean, and 0, 8 by 4.
    unit, wide = gauss(rows([1, 3], [0, 8]), default_rng(2))
    noise = default_rng(2).standard_normal((2, 2), dtype="float32")
    assert unit.tolist() == noise[0].tolist()
    assert wide.tolist() == (4 * noise[1]).tolist()


def test_gauss_draws_afresh_for_each_attacker() -> None:
    one, other = gauss(normal(1, 1000, 0).expand(2, -1), default_rng(0))
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 0.2


def test_gauss_with_the_same_generator_sends_the_same_bits() -> None:
    assert torch.equal(gauss(normal(3, 50, 0), default_rng(7)), gauss(normal(3, 50, 0), default_rng(7)))
    assert not torch.equal(gauss(normal(3, 50, 0), default_rng(7)), gauss(normal(3, 50, 0), default_rng(8)))


def test_gauss_keeps_the_type_of_the_updates() -> None:
    assert gauss(normal(2, 3, 0).double(), default_rng(0)).dtype == torch.double


# LIE.


def test_lie_is_the_honest_mean_minus_z_deviations() -> None:
    # Means 2 and 4; deviations 1 and 2.
    assert lie(HONEST, z=3).tolist() == [-1, -2]
    assert lie(HONEST).tolist() == [-18, -36]


@given(honest=scattered(), z=st.floats(-5, 25))
@quick
def test_lie_uses_the_population_deviation_of_numpy(honest: Updates, z: float) -> None:
    matrix = honest.double().numpy()
    expected = matrix.mean(axis=0) - z * np.std(matrix, axis=0)
    np.testing.assert_allclose(lie(honest, z=z), expected, atol=1e-4)


def test_lie_against_a_single_honest_client_sends_its_update() -> None:
    assert lie(rows([1, 2])).tolist() == [1, 2]


# Empire and omniscient: what FedAvg over all clients makes of them.


def test_empire_is_the_honest_mean_turned_and_scaled() -> None:
    # ū = (2, 4), k = 2, m − k = 4: −1.1 · 2/4.
    assert empire(HONEST, 4).tolist() == pytest.approx([-1.1, -2.2])
    assert empire(HONEST, 4, scale=3).tolist() == pytest.approx([-3, -6])


@given(honest=scattered(), num_byzantine=attackers)
@quick
def test_empire_turns_the_mean_of_all_around(honest: Updates, num_byzantine: int) -> None:
    # (k·ū + b·(−1.1·k/b)·ū) / m = k/m · (1 − 1.1) · ū.
    share = len(honest) / (len(honest) + num_byzantine)
    outcome = mean_of_all(honest, empire(honest, num_byzantine), num_byzantine)
    assert close(outcome, -0.1 * share * honest.mean(0))


def test_omniscient_solves_for_the_target() -> None:
    # u = −(2, 4), m = 6, Σ honest = (4, 8): (6u − Σ)/4.
    assert omniscient(HONEST, 4).tolist() == [-4, -8]


@given(honest=scattered(), num_byzantine=attackers)
@quick
def test_omniscient_makes_the_mean_of_all_the_opposite_of_the_honest_mean(
    honest: Updates, num_byzantine: int
) -> None:
    outcome = mean_of_all(honest, omniscient(honest, num_byzantine), num_byzantine)
    assert close(outcome, -honest.mean(0))


def test_ratchet_sends_a_copy_of_the_preferred_model_a_little_further_back() -> None:
    honest = rows([1, 2], [3, 2])
    sent = ratchet(honest, start=torch.tensor([5.0, 5.0]), preferred=torch.tensor([7.0, 4.0]), back=0.5)
    # The candidate is start + sent: the preferred model less half the mean (2, 2).
    assert (torch.tensor([5.0, 5.0]) + sent).tolist() == [6, 3]


# Promises of every attack.


@pytest.mark.parametrize("name", list(attack))
def test_no_attack_changes_what_it_sees_and_each_sends_one_row_or_one_vector(name: str) -> None:
    def context() -> dict[str, object]:
        return {
            "own": normal(3, 4, 0),
            "honest": normal(5, 4, 1),
            "start": normal(1, 4, 2)[0],
            "preferred": normal(1, 4, 3)[0],
            "layers": {"weight": (2, 1), "bias": (2,)},
            "attackers": 3,
            "round_index": 0,
            "num_byzantine": 3,
            "num_classes": 10,
            "aggregate": fedavg,
            "rng": default_rng(0),
            "labels": torch.arange(10),
            "images": normal(10, 16, 4).view(10, 1, 4, 4),
            "owners": np.arange(10),
        }

    seen, untouched = context(), context()
    sent = attack.resolve(name)(**seen)
    for key in ("own", "honest", "labels", "images"):
        assert str(seen[key]) == str(untouched[key])
    if isinstance(sent, Poison):
        assert (sent.images.shape, sent.labels.shape) == ((10, 1, 4, 4), (10,))
        return
    shapes = [(10,)] if "labels" in attack.resolve(name).wants else [(3, 4), (4,)]
    assert tuple(sent.shape) in shapes
