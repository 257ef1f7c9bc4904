"""The corrected bound on the real protocol, and the adversary that it is measured against."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from experiments.convex import ETA, SETTINGS, SIGMA, LeastSquares, bound_for, measure, play
from lidfl.theory.convergence import ParentRule

WRITTEN = json.loads((Path(__file__).parents[2] / "docs" / "convex.json").read_text())


def test_the_constants_are_what_the_gradients_show() -> None:
    """The noise's variance by simulation; α, β by the curvature along random lines."""
    problem, rng = LeastSquares(), default_rng(1)
    model = problem.at(1.0, problem.slowest)
    steps = np.array([problem.step(model, rng).numpy() for _ in range(4000)])
    assert (steps.var(0).sum() * problem.beta**2) ** 0.5 == pytest.approx(SIGMA, rel=0.03)
    lines = rng.normal(size=(200, len(model)))
    curvatures = np.einsum("ni,ij,nj->n", lines, problem.hessian.numpy(), lines) / (lines**2).sum(1)
    assert problem.alpha <= curvatures.min() < curvatures.max() <= problem.beta


@pytest.mark.parametrize(("rule", "candidates"), SETTINGS)
def test_a_vote_that_does_not_fail_costs_at_most_two_eta_a_removal(rule: ParentRule, candidates: int) -> None:
    run = play(LeastSquares(), rule, candidates, run=0, rounds=60)
    assert run is not None
    assert np.diff(run).max() <= 2 * ETA * candidates + 1e-12


def test_the_adversary_bites() -> None:
    """In rounds that a Byzantine worker has, the best model is often replaced by one almost 2η worse."""
    run = play(LeastSquares(), "uniform", 1, run=0, rounds=60)
    assert run is not None
    assert np.diff(run).max() == pytest.approx(1.9 * ETA)


@pytest.mark.parametrize("rule", ["uniform", "favourite"])
def test_the_measured_error_stays_under_the_corrected_bound(rule: ParentRule) -> None:
    curve = measure(rule, 1, runs=30, rounds=40)
    assert all(measured <= bound for measured, bound in zip(curve.measured[1:], curve.bound[1:], strict=True))
    assert curve.measured[-1] < 0.5


def test_what_is_written_is_under_the_bound_as_the_theory_has_it_now() -> None:
    problem = LeastSquares()
    assert [(curve["rule"], curve["candidates"]) for curve in WRITTEN["curves"]] == SETTINGS
    for curve in WRITTEN["curves"]:
        assert curve["closest"] < 1
        bound = bound_for(problem, curve["rule"], curve["candidates"])
        expected = [bound.bound(index * WRITTEN["problem"]["every"]) for index in range(len(curve["bound"]))]
        assert curve["bound"] == pytest.approx(expected, abs=1e-6)
        assert all(measured <= limit for measured, limit in zip(curve["measured"], curve["bound"], strict=True))
