"""What a run's models take and give, and whether what was read of it holds together."""

from dataclasses import dataclass

from lidfl.data.shards import Statistics
from lidfl.files import fits

LARGEST_IMAGE = 1_000_000
"""Pixels along a side, and classes, that a run could have."""


@dataclass(frozen=True)
class Inputs:
    """What a run's models take and give."""

    image_shape: tuple[int, int, int]
    num_classes: int
    statistics: Statistics

    def checked(self) -> "Inputs":
        """Itself; ValueError if its parts do not go together."""
        sizes = (*self.image_shape, self.num_classes)
        if not all(fits(size, int) and 0 < size < LARGEST_IMAGE for size in sizes):
            raise ValueError("the shape of its images is damaged")
        for values in (self.statistics.mean, self.statistics.std):
            fitting = values.ndim == 3 and all(
                size in (1, wanted) for size, wanted in zip(values.shape, self.image_shape, strict=True)
            )
            if not (fitting and values.is_floating_point() and bool(values.isfinite().all())):
                raise ValueError("its mean or deviation is damaged")
        return self
