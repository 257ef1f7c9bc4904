"""Softmax regression on images that are mostly background, in C++: only what is inked is multiplied.

An image is a background that all share plus deviations from it. What a model says of the background is folded into
its biases, so a product runs over the deviations alone (sparse.h): on FEMNIST over one pixel in eight. The results
are those of the `linear` engine within float32's rounding, and the same bits for any number of threads or jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from lidfl.learning.client import LocalTraining, local_update
from lidfl.learning.native.build import NativeUnavailable, library
from lidfl.learning.native.engine import LARGEST_PIXEL
from lidfl.learning.parameters import Network, linear_shape
from lidfl.types import Parameters, Updates

if TYPE_CHECKING:
    from lidfl.learning.engines import Engine, Jobs

WORTH_IT = 0.4
"""With more ink than this, whole matrix products are about as fast."""
LOOKED_AT = 501
"""So many images tell what the background is; any background is right, a good one leaves little ink."""
KEPT = 4
"""Sets of images that are kept as deviations: validation and test images, and a few voters' own."""


@dataclass(frozen=True)
class Inked:
    """Images by what differs from a background: image i has entries offsets[i] … offsets[i + 1] − 1."""

    offsets: Tensor
    features: Tensor
    deviations: Tensor
    background: Tensor

    @classmethod
    def of(cls, images: Tensor, background: Tensor) -> Inked:
        """The same images, as deviations."""
        deviations = images.flatten(1) - background
        inked = deviations != 0
        offsets = F.pad(inked.sum(1).cumsum(0), (1, 0))
        return cls(offsets, inked.nonzero()[:, 1].int(), deviations[inked], background)

    @property
    def addresses(self) -> list[int]:
        """Where the engine finds them."""
        return [t.data_ptr() for t in (self.offsets, self.features, self.deviations, self.background)]


def background_of(images: Tensor) -> Tensor:
    """Of each pixel the value that most images have, if more than half of them do: the median of some images."""
    step = max(1, len(images) // LOOKED_AT)
    return images[::step].flatten(1).median(0).values


def is_worth_it(images: Tensor) -> bool:
    """Whether there is little enough ink, in images that the engine can read."""
    if images.dtype != torch.float32 or images.device.type != "cpu" or len(images) == 0:
        return False
    some = images[:: max(1, len(images) // LOOKED_AT)]
    readable = float(images.abs().max()) <= LARGEST_PIXEL  # nor is NaN
    return readable and float((some.flatten(1) != background_of(images)).float().mean()) <= WORTH_IT


def sparse(network: Network, training: LocalTraining, images: Tensor, labels: Tensor) -> Engine:
    """An engine for softmax regression on images with little ink; whatever overflows is left to torch."""
    loaded = library()
    classes, inputs = linear_shape(network)
    if not is_worth_it(images) or classes > loaded.lidfl_softmax_classes():
        raise NativeUnavailable("the sparse engine takes finite images, mostly background, of some 100 classes")
    inked, labels = Inked.of(images, background_of(images)), labels.contiguous()

    def train(jobs: Jobs) -> Updates:
        starts, rows = jobs.starts.detach().contiguous(), jobs.rows.long().contiguous()
        if rows.min() < 0 or rows.max() >= len(images):
            raise IndexError("a batch has rows that are not there")
        updates, reliable = torch.empty_like(starts), torch.zeros(len(starts), dtype=torch.uint8)
        addresses = [tensor.data_ptr() for tensor in (labels, starts, rows)]
        failed = loaded.lidfl_train_softmax(
            *(inputs, classes, *inked.addresses, *addresses, *rows.shape),
            *(training.learning_rate, training.momentum, torch.get_num_threads()),
            *(updates.data_ptr(), reliable.data_ptr()),
        )
        for job in range(len(starts)):
            if failed or not reliable[job]:
                updates[job] = local_update(network, starts[job], images, labels, rows[job], training)
        return updates

    return train


class Kept:
    """The images that were asked for last, as deviations: models are judged one after the other on the same."""

    def __init__(self, background: Tensor) -> None:
        self.background = background
        self.known: list[tuple[Tensor, Inked]] = []

    def __call__(self, images: Tensor) -> Inked:
        """These very images as deviations, found or made."""
        found = [pair for pair in self.known if pair[0] is images]
        pair = found[0] if found else (images, Inked.of(images, self.background))
        self.known = [*(other for other in self.known if other is not pair), pair][-KEPT:]
        return pair[1]


def sparse_logits(
    network: Network, background: Tensor, otherwise: Callable[[Parameters, Tensor], Tensor]
) -> Callable[[Parameters, Tensor], Tensor]:
    """How a model's logits are computed; what the engine cannot do is done otherwise.

    The background is given, so that what is said of an image does not depend on the images beside it.
    """
    classes, inputs = linear_shape(network)
    inked = Kept(background)

    @torch.no_grad()
    def evaluate(vector: Parameters, images: Tensor) -> Tensor:
        if vector.dtype != torch.float32 or images.dtype != torch.float32 or images.device.type != "cpu":
            return otherwise(vector, images)
        vector, outputs = vector.contiguous(), torch.empty(len(images), classes)
        unreliable = library().lidfl_logits_softmax(
            *(inputs, classes, *inked(images).addresses, vector.data_ptr(), len(images)),
            *(torch.get_num_threads(), outputs.data_ptr()),
        )
        return otherwise(vector, images) if unreliable else outputs

    return evaluate
