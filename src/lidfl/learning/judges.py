"""How a client judges a model: a number for each of its validation images; the lower the mean, the better.

A judge is one function of a model's logits and the labels, `(images, classes)` and `(images,)`. It may name
`num_classes`, since logits may have more columns than there are classes; those have no probability.
"""

from __future__ import annotations

import math

from lidfl.lazily import torch
from lidfl.registry import Registry, within

judge: Registry[torch.Tensor] = Registry("judge", frozenset({"num_classes"}), given=("outputs", "labels"))


@judge
def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of each image, as in the paper; one image may outweigh all others."""
    return torch.nn.functional.cross_entropy(outputs, labels, reduction="none")


@judge
@within(at=(1e-3, 1e6))
def bounded(outputs: torch.Tensor, labels: torch.Tensor, num_classes: int, *, at: float = 1.0) -> torch.Tensor:
    """The cross-entropy, cut off at `at` times ln(classes), the loss of a guess: a range that the theory needs.

    Appendix A.3 counts on losses between 0 and H. With it H is known, and no image decides a vote alone.
    """
    return loss(outputs, labels).clamp_max(at * math.log(num_classes))


@judge
def errors(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """1 for each image that is not seen right, 0 for the others."""
    return (outputs.argmax(1) != labels).to(outputs.dtype)
