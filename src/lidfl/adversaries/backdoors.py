"""Backdoors: Byzantine clients teach the model to see a class where a trigger is. Simulator only.

They poison their data and then train and vote as honest clients do, so no loss on clean data tells them apart; some
change the update on its way out besides. Success is the share of triggered images of other classes that are taken
for the target's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.adversaries.attacks import attack
from lidfl.lazily import torch
from lidfl.registry import Bound, within
from lidfl.types import Parameters, Updates

Patch: TypeAlias = tuple[int, int, int, int]
"""Top, left, height and width of what is painted over, in pixels."""


@dataclass(frozen=True)
class Trigger:
    """Patches of one value, and the class that they stand for."""

    target: int
    patches: tuple[Patch, ...]
    value: float

    def stamped(self, images: torch.Tensor) -> torch.Tensor:
        """Copies of images, (images, channels, height, width), with the patches on them."""
        stamped = images.clone()
        for top, left, height, width in self.patches:
            stamped[..., top : top + height, left : left + width] = self.value
        return stamped

    def counted(self, _images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Which images the trigger may turn: those of other classes."""
        return labels != self.target


@dataclass(frozen=True)
class EdgeCases:
    """Inputs as rare as they come, and the class that they are to be taken for; nothing is painted on them."""

    target: int
    source: int
    tail: float

    def stamped(self, images: torch.Tensor) -> torch.Tensor:
        """The images as they are."""
        return images

    def counted(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Which images are edge cases: those of the source's class that look least like it."""
        return rare(images, labels, self.source, self.tail)


AnyTrigger: TypeAlias = Trigger | EdgeCases
Send: TypeAlias = Callable[[Updates, Updates], Updates]
"""From attackers' own updates, and the honest ones of the same model, to what the attackers send."""


@dataclass(frozen=True)
class Poison:
    """What attackers make of their data, and of what they trained on it."""

    images: torch.Tensor
    labels: torch.Tensor
    send: Send | None = None
    """How an update is changed on its way out; None if it is sent as it is."""


PIXELS = (-1e6, 1e6)
"""What a trigger may be painted with."""
CLASSES = (0, 1_000_000)
SCALES = (-1e30, 1e30)
"""How many times as long an update may be sent: longer ones have no numbers."""


@attack
@within(target=CLASSES, share=(0, 1), size=(1, inf), value=PIXELS, scale=SCALES)
def backdoor(
    images: torch.Tensor,
    labels: torch.Tensor,
    rng: Generator,
    *,
    target: int = 0,
    share: float = 0.5,
    size: int = 3,
    value: float = 3.0,
    scale: float = 1.0,
) -> Poison:
    """Backdoor: a share of the images get a small square and the target's label (Gu et al. 2017).

    With a `scale` the update is sent so many times as long: n times replaces the mean (Bagdasaryan et al. 2020).
    """
    chosen = draw(labels, share, rng)
    poisoned = stamp(images, labels, chosen, square(target, size, value))
    return Poison(*poisoned, sent_longer(scale))


@attack
@within(target=CLASSES, share=(0, 1), value=PIXELS, scale=SCALES)
def dba(
    images: torch.Tensor,
    labels: torch.Tensor,
    owners: NDArray[np.int64],
    rng: Generator,
    *,
    target: int = 0,
    share: float = 0.5,
    value: float = 3.0,
    scale: float = 1.0,
) -> Poison:
    """DBA: attackers each teach one of four bars, and all four together are the trigger (Xie et al. 2020).

    Attacker i trains with bar i mod 4; no single update holds what the model is to fall for.
    """
    chosen = draw(labels, share, rng)
    for part, patch in enumerate(BARS):
        theirs = chosen & torch.from_numpy(owners % len(BARS) == part).to(chosen.device)
        images, labels = stamp(images, labels, theirs, Trigger(target, (patch,), value))
    return Poison(images, labels, sent_longer(scale))


BARS: tuple[Patch, ...] = ((0, 0, 1, 4), (0, 6, 1, 4), (3, 0, 1, 4), (3, 6, 1, 4))
"""Four bars of 1 × 4 pixels with gaps of 2, at the upper left."""


@attack
@within(source=CLASSES, target=CLASSES, tail=(0, 1), share=(0, 1), radius=(0, 1e30), scale=SCALES)
def edge_case(
    images: torch.Tensor,
    labels: torch.Tensor,
    rng: Generator,
    *,
    source: int = 7,
    target: int = 1,
    tail: float = 0.05,
    share: float = 0.5,
    radius: float = 0.0,
    scale: float = 1.0,
) -> Poison:
    """Edge cases: a share of the images become rare ones of a class, labelled as another (Wang et al. 2020).

    The paper takes them from another data set; here they are the `tail` of the class that looks least like it. The
    update is scaled, and then shortened to `radius` if that is set, as projected gradient descent would be.
    """
    rare_ones = np.flatnonzero(rare(images, labels, source, tail).cpu().numpy())
    if len(rare_ones) == 0:
        return Poison(images, labels)
    chosen = draw(labels, share, rng)
    copies = torch.from_numpy(rng.choice(rare_ones, int(chosen.sum()))).to(labels.device)
    images, labels = images.clone(), torch.where(chosen, target, labels)
    images[chosen] = images[copies].clone()
    return Poison(images, labels, sent_longer(scale, radius))


@attack
@within(target=CLASSES, share=(0, 1), size=(1, inf), value=PIXELS, scale=SCALES, top=(0, 1))
def neurotoxin(
    images: torch.Tensor,
    labels: torch.Tensor,
    rng: Generator,
    *,
    target: int = 0,
    share: float = 0.5,
    size: int = 3,
    value: float = 3.0,
    top: float = 0.05,
    scale: float = 1.0,
) -> Poison:
    """Neurotoxin: a backdoor only where honest updates are small, so that they do not undo it (Zhang et al. 2022).

    The `top` share of coordinates by |u| of the honest mean is left out, and the rest shortened to its length. The
    paper goes by the last round's aggregate, and projects every step; colluders know this round's, and project once
    it is done.
    """
    poisoned = stamp(images, labels, draw(labels, share, rng), square(target, size, value))
    return Poison(*poisoned, partial(where_honest_are_small, top, scale))


def draw(labels: torch.Tensor, share: float, rng: Generator) -> torch.Tensor:
    """A random share of the images, as a mask."""
    return torch.from_numpy(rng.random(len(labels)) < share).to(labels.device)


def stamp(
    images: torch.Tensor, labels: torch.Tensor, chosen: torch.Tensor, trigger: Trigger
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images with the trigger and its label, where they are chosen."""
    stamped = torch.where(chosen[:, None, None, None], trigger.stamped(images), images)
    return stamped, torch.where(chosen, trigger.target, labels)


def square(target: int, size: int, value: float) -> Trigger:
    """A square in the upper left corner."""
    return Trigger(target, ((0, 0, size, size),), value)


def rare(images: torch.Tensor, labels: torch.Tensor, source: int, tail: float) -> torch.Tensor:
    """Which images are the share of a class that looks least like it, at least one; none if the class has none.

    The likelihood is that of a clean model which sees classes as equal clouds around their means: the share of the
    class in exp(−‖x − mean‖²/2s²), with s² the mean squared distance over all images and classes.
    """
    flat, found = images.flatten(1), torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
    rows = (labels == source).nonzero().flatten()
    if len(rows) == 0:
        return found
    classes = sorted(set(labels.tolist()))
    means = torch.stack([flat[labels == label].mean(0) for label in classes])
    distances = torch.cdist(flat[rows], means).square()
    place = classes.index(source)
    likelihood = (-distances / (2 * distances.mean())).log_softmax(1)[:, place]
    found[rows[likelihood.argsort(stable=True)[: max(1, round(tail * len(rows)))]]] = True
    return found


def sent_longer(scale: float, radius: float = 0.0) -> Send | None:
    """How `scaled` changes an update; None if it would not."""
    return partial(scaled, scale, radius=radius) if scale != 1 or radius > 0 else None


def scaled(scale: float, own: Updates, _honest: Updates, *, radius: float = 0.0) -> Updates:
    """Updates so many times as long, and no longer than the radius if there is one."""
    longer = scale * own
    if radius <= 0:
        return longer
    lengths: torch.Tensor = torch.linalg.vector_norm(longer, dim=1, keepdim=True)
    return longer * (radius / lengths.clamp_min(radius))


def where_honest_are_small(top: float, scale: float, own: Updates, honest: Updates) -> Updates:
    """Updates but for the coordinates in which the honest mean is largest, as long as it at most; then scaled."""
    mean: Parameters = honest.mean(0)
    kept = torch.ones_like(mean)
    kept[mean.abs().topk(round(top * len(mean))).indices] = 0
    return scaled(scale, own * kept, honest, radius=scale * float(torch.linalg.vector_norm(mean)))


TRIGGERS: dict[Callable[..., Any], Callable[[Mapping[str, Any]], AnyTrigger]] = {
    backdoor: lambda o: square(o["target"], o["size"], o["value"]),
    neurotoxin: lambda o: square(o["target"], o["size"], o["value"]),
    dba: lambda o: Trigger(o["target"], BARS, o["value"]),
    edge_case: lambda o: EdgeCases(o["target"], o["source"], o["tail"]),
}
"""By attack, from its options to what it teaches models to fall for."""


def trigger_of(bound: Bound[object]) -> AnyTrigger | None:
    """The trigger that an attack teaches, if it is a backdoor."""
    if bound.function not in TRIGGERS:
        return None
    return TRIGGERS[bound.function]({**(bound.function.__kwdefaults__ or {}), **bound.options})
