"""Judges agree with hand-computed values, and a bounded one lets no image decide alone."""

import math

import pytest
import torch

from lidfl.learning.judges import bounded, errors, judge, loss

LOGITS = torch.tensor([[0.0, 0.0], [3.0, 0.0], [-50.0, 50.0]])
LABELS = torch.tensor([0, 0, 0])


def test_the_loss_is_the_cross_entropy() -> None:
    assert loss(LOGITS, LABELS).tolist() == pytest.approx([math.log(2), math.log(1 + math.exp(-3)), 100])


def test_a_bounded_loss_is_cut_off_at_that_of_a_guess() -> None:
    told = bounded(LOGITS, LABELS, 2).tolist()
    assert told == pytest.approx([math.log(2), math.log(1 + math.exp(-3)), math.log(2)])
    assert bounded(LOGITS, LABELS, 2, at=2.0)[2] == pytest.approx(2 * math.log(2))


def test_columns_without_probability_change_nothing() -> None:
    filled = torch.nn.functional.pad(LOGITS, (0, 3), value=float("-inf"))
    for name in judge:
        rule = judge.resolve(name)
        assert rule(filled, LABELS, num_classes=2).tolist() == rule(LOGITS, LABELS, num_classes=2).tolist()


def test_errors_are_counted() -> None:
    assert errors(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])).tolist() == [0, 1]


@pytest.mark.parametrize("name", list(judge))
def test_a_model_that_is_not_a_number_is_never_liked(name: str) -> None:
    told = judge.resolve(name)(torch.full((2, 3), float("nan")), torch.tensor([1, 1]), num_classes=3)
    assert not (told < 1).any()
