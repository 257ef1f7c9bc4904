"""Backdoors: Byzantine clients teach the model to see a class where a trigger is. Simulator only.

They poison their data and then train and vote as honest clients do, so no loss on clean data tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from lidfl.adversaries.attacks import attack
from lidfl.lazily import torch
from lidfl.registry import Bound


@dataclass(frozen=True)
class Trigger:
    """A square in the upper left corner, and the class that it stands for."""

    target: int
    size: int
    value: float

    def stamped(self, images: torch.Tensor) -> torch.Tensor:
        """Copies of images, (images, channels, height, width), with the square on them."""
        stamped = images.clone()
        stamped[..., : self.size, : self.size] = self.value
        return stamped


@attack
def backdoor(
    images: torch.Tensor,
    labels: torch.Tensor,
    rng: Generator,
    *,
    target: int = 0,
    share: float = 0.5,
    size: int = 3,
    value: float = 3.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Backdoor: a share of the images get a small square and the target's label (Gu et al. 2017)."""
    chosen = torch.from_numpy(rng.random(len(labels)) < share).to(labels.device)
    stamped = Trigger(target, size, value).stamped(images)
    poisoned = torch.where(chosen[:, None, None, None], stamped, images)
    return poisoned, torch.where(chosen, target, labels)


def trigger_of(bound: Bound[object]) -> Trigger | None:
    """The trigger that an attack teaches, if it is a backdoor."""
    if bound.function is not backdoor:
        return None
    chosen = {**(backdoor.__kwdefaults__ or {}), **bound.options}
    return Trigger(chosen["target"], chosen["size"], chosen["value"])
