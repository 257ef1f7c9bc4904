"""What a run's models take is believed only if its parts go together."""

from typing import Any

import pytest
import torch

from lidfl.data.shards import Statistics
from lidfl.runs.inputs import Inputs

WHOLE = Inputs((1, 8, 8), 10, Statistics(torch.zeros(1, 8, 8), torch.ones(1, 1, 1)))


def test_inputs_whose_parts_go_together_are_taken_as_they_are() -> None:
    assert WHOLE.checked() is WHOLE


@pytest.mark.parametrize(
    ("shape", "classes"),
    [
        ((1, 0, 8), 10),
        ((1, 8, -8), 10),
        ((1, 8, 1_000_000), 10),
        ((1, 8.0, 8), 10),
        ((1, 8, 8), 0),
        ((1, 8, 8), True),
    ],
)
def test_images_of_a_shape_that_cannot_be_and_no_classes_are_refused(shape: Any, classes: Any) -> None:
    with pytest.raises(ValueError, match="the shape of its images is damaged"):
        Inputs(shape, classes, WHOLE.statistics).checked()


@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(64),
        torch.zeros(1, 8, 7),
        torch.zeros(1, 8, 8, dtype=torch.int64),
        torch.full((1, 8, 8), float("nan")),
        torch.full((1, 1, 1), float("inf")),
    ],
)
def test_a_mean_or_deviation_that_fits_no_image_or_is_no_number_is_refused(values: torch.Tensor) -> None:
    for statistics in (Statistics(values, torch.ones(1, 1, 1)), Statistics(torch.zeros(1, 1, 1), values)):
        with pytest.raises(ValueError, match="its mean or deviation is damaged"):
            Inputs((1, 8, 8), 10, statistics).checked()
