"""The sorting network sorts, and its median is numpy's."""

from itertools import product

import numpy as np
import pytest
import torch

from lidfl.methods.medians import COLUMNS, coordinate_median, merge_sort_network


@pytest.mark.parametrize("count", range(1, 13))
def test_the_network_sorts_every_sequence_of_zeros_and_ones(count: int) -> None:
    """By the 0-1 principle it then sorts every sequence."""
    values = np.array(list(product([0, 1], repeat=count))).T.copy()
    for low, high in merge_sort_network(count):
        values[[low, high]] = np.minimum(values[low], values[high]), np.maximum(values[low], values[high])
    assert (np.diff(values, axis=0) >= 0).all()


@pytest.mark.parametrize("count", [1, 2, 3, 8, 15, 34, 35, 100])
def test_the_median_is_numpys(count: int) -> None:
    updates = torch.from_numpy(np.random.default_rng(count).normal(size=(count, 50))).float()
    np.testing.assert_allclose(coordinate_median(updates), np.median(updates.numpy(), axis=0), rtol=1e-6)


def test_more_columns_than_fit_at_once_are_all_there() -> None:
    updates = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 2 * COLUMNS + 3))).float()
    assert torch.equal(coordinate_median(updates), updates.median(0).values)
