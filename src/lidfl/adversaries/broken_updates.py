"""Updates that mean nothing: noise of a given length, nothing at all, or no numbers. Simulator and test nodes."""

from __future__ import annotations

import math

from numpy.random import Generator

from lidfl.adversaries.attacks import attack
from lidfl.lazily import torch
from lidfl.registry import within
from lidfl.types import Parameters, Updates


@attack
@within(length=(0, math.inf))
def noise(own: Updates, rng: Generator, *, length: float = 1.0) -> Updates:
    """Noise: each sends a random direction of a given length."""
    drawn = torch.from_numpy(rng.standard_normal(tuple(own.shape), dtype="float32")).to(own)
    return length * torch.nn.functional.normalize(drawn)


@attack
def zero(start: Parameters) -> Parameters:
    """Zero: nothing moves, which slows learning down and hides among small updates."""
    return torch.zeros_like(start)


@attack
def nan(start: Parameters) -> Parameters:
    """NaN: what is not a number; the server does not use it, and counts it."""
    return torch.full_like(start, float("nan"))


@attack
def inf(start: Parameters) -> Parameters:
    """Infinity: the server does not use it, and counts it."""
    return torch.full_like(start, float("inf"))
