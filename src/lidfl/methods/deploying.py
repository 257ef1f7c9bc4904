"""What a client makes of the final list: the model that it will use.

A rule is one function of what a client has: the list, and its own data, by which it can judge and train models. It
returns one model. Whatever it tries, it keeps by its own validation data; `best` is the paper's rule.
"""

from __future__ import annotations

from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lidfl.lazily import torch
from lidfl.registry import Registry, within
from lidfl.types import Models, Parameters


class OwnData(Protocol):
    """What a client can do with its own data."""

    def losses(self, models: Models) -> NDArray[np.float64]:
        """Its judgement of each model, on its validation images; lower is better."""
        ...

    def values(self, models: Models) -> NDArray[np.float64]:
        """The same image by image, (models, images), of which losses are the means."""
        ...

    def trained(self, model: Parameters, part: int) -> Parameters:
        """A model after one more local training on its training images; `part` numbers the trainings."""
        ...

    def alone(self, rounds: int) -> Parameters:
        """What it would have without the others: `trained_alone`, which need not be computed twice."""
        ...

    def first(self) -> Parameters:
        """The model that everything began with."""
        ...


FEW, ENOUGH = 10, 50
"""Of fewer than ten images nobody can tell a spread. And who has fewer than fifty takes models for alike that fifty
could not tell apart: the fewer the images, the more would pass by chance, up to those that serve nobody."""

deploy: Registry[Parameters] = Registry("deploy", frozenset({"rounds"}), given=("models", "own"))


@deploy
def best(models: Models, own: OwnData) -> Parameters:
    """The model of the list with the lowest own loss, as in the paper."""
    return models[int(own.losses(models).argmin())]


@deploy
def or_alone(models: Models, own: OwnData, rounds: int) -> Parameters:
    """The model with the lowest own loss, of the list and of what training alone gives."""
    return _lowest([*models, own.alone(rounds)], own)


@deploy
@within(share=(0, 1))
def average(models: Models, own: OwnData, *, share: float = 0.5) -> Parameters:
    """The mean of the better share of the list, by own loss."""
    order = own.losses(models).argsort(kind="stable")
    return models[order[: max(1, round(share * len(models)))].tolist()].mean(0)


@deploy
def soup(models: Models, own: OwnData) -> Parameters:
    """Of the best model and the means of the best 2, 4, 8, … by own loss, the one with the lowest own loss.

    Own data cannot tell good models apart, and their mean is better than most of them (Wortsman et al. 2022); where
    it is not, own data can tell that.
    """
    return _lowest(soups(models, own), own)


@deploy
@within(parts=(0, 1000))
def tuned(models: Models, own: OwnData, *, parts: int = 10) -> Parameters:
    """The soup, and what becomes of it in up to so many local trainings on own data: the lowest own loss."""
    return _lowest(_path(soup(models, own), own, parts), own)


@deploy
@within(errors=(0, inf))
def alike(models: Models, own: OwnData, *, errors: float = 2.0) -> Parameters:
    """The mean of the best model and of those that own data cannot tell from it: less variance, no lucky winner.

    Two models are alike if their losses, image by image, differ on average by less than so many standard errors, of
    fifty images at least. A model joins only if the mean with it is alike too: one may be as good and still spoil a
    mean, as a network does whose hidden units were permuted.
    """
    values = own.values(models)
    first, *others = values.mean(1).argsort(kind="stable").tolist()
    members, mean = [first], models[first]
    for place in others:
        if differ(values[place], values[first], errors, ENOUGH):
            continue
        wider = models[[*members, place]].mean(0)
        if not differ(own.values(wider[None])[0], values[first], errors, ENOUGH):
            members, mean = [*members, place], wider
    return mean


@deploy
@within(parts=(0, 1000), errors=(0, inf))
def joined(models: Models, own: OwnData, rounds: int, *, parts: int = 4, errors: float = 2.0) -> Parameters:
    """`alike`, unless that model tuned on own data, or one trained alone as long, is better beyond doubt.

    So joining costs nobody more than own validation data can tell, whatever the list holds; where clients differ,
    it gains what tuning gains. Fewer than ten images are no ground to leave what is shared.
    """
    shared = alike(models, own, errors=errors)
    if own.values(shared[None]).shape[1] < FEW:
        return shared
    other = _lowest([*_path(shared, own, parts)[1:], own.alone(rounds)], own)
    values = own.values(torch.stack([shared, other]))
    return other if differ(values[0], values[1], errors) else shared


def differ(values: NDArray[np.float64], lower: NDArray[np.float64], errors: float, images: int = 1) -> bool:
    """Whether losses, image by image, are higher than others by more than so many standard errors.

    The error is that of so many images at least, however few there are.
    """
    differences = values - lower
    if not np.isfinite(differences).all():
        return bool(np.isfinite(lower).all())
    number = max(len(differences), images)
    spread = differences.std(ddof=1) / number**0.5 if len(differences) > 1 else 0.0
    return bool(differences.mean() > errors * spread)


def trained_alone(own: OwnData, rounds: int) -> Parameters:
    """The first model trained on own data for so many local trainings, stopped where its own loss was lowest."""
    return _lowest(_path(own.first(), own, rounds), own)


def soups(models: Models, own: OwnData) -> list[Parameters]:
    """The best model, and the means of the best 2, 4, 8, … and of all, by own loss."""
    losses = own.losses(models)
    order = losses.argsort(kind="stable")[: max(1, int(np.isfinite(losses).sum()))].tolist()
    sizes = dict.fromkeys(
        [*(2**power for power in range(len(order).bit_length()) if 2**power <= len(order)), len(order)]
    )
    return [models[order[:size]].mean(0) for size in sizes]


def _path(model: Parameters, own: OwnData, parts: int) -> list[Parameters]:
    """A model, and where each of so many local trainings takes it."""
    path = [model]
    for part in range(parts):
        path.append(own.trained(path[-1], part))
    return path


def _lowest(models: list[Parameters], own: OwnData) -> Parameters:
    """The model with the lowest own loss; of equals the first."""
    return models[int(own.losses(torch.stack(models)).argmin())]
