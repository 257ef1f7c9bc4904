"""The corrected convergence bound, measured: the real protocol on a problem whose α, β and σ are known.

    python -m experiments.convex        writes docs/convex.json and docs/convex.svg

Ridge-regularised least squares with a fixed design X and labels that are measured anew, with noise, for every
gradient: then f(w) − f* = ½(w − w*)ᵀA(w − w*) with A = XᵀX/n + λI, and the gradient's noise has the same variance
σ² everywhere. The adversary knows all that and does its worst within the theorem's assumptions:

- validation oracles err by exactly η wherever that hurts: the best model looks worse, all others look better;
- Byzantine workers *creep*: they propose a model that is worse than the best by a little less than 2η, so that
  honest voters prefer it and the best can be voted out;
- Byzantine voters see all ballots, collude, and remove the best if they can.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from lidfl.adversaries.vote_attacks import coordinated, lift
from lidfl.methods import proposals
from lidfl.methods.elections import honest_ballots, plurality, ranked
from lidfl.protocol import ModelList, Replies, Request, Rules, Train, Trained, Vote, first_choices, lid_round
from lidfl.runs.loop import drive
from lidfl.seeds import rng_for
from lidfl.theory.convergence import Convergence, ParentRule, Problem, corrected_bound
from lidfl.theory.votes import Electorate, vote_failure
from lidfl.types import Ballot, Client, Losses, Models, Parameters

DOCS = Path(__file__).parents[1] / "docs"
ELECTORATE = Electorate.smallest(35, 14)
ETA, P, SIGMA, RIDGE, DIM, ROWS, GAP = 0.002, 0.999, 0.1, 0.1, 8, 64, 1.0
ROUNDS, RUNS, EVERY = 150, 200, 5
SETTINGS: list[tuple[ParentRule, int]] = [("uniform", 1), ("favourite", 1), ("uniform", 3), ("favourite", 3)]
"""Parent rule and number of candidates."""


class LeastSquares:
    """Ridge-regularised least squares with known constants."""

    def __init__(self) -> None:
        rng = rng_for(0, "convex")
        columns = np.linalg.qr(rng.normal(size=(ROWS, DIM)))[0]
        rotation = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
        curvatures = np.linspace(0.1, 0.9, DIM)
        design = columns * np.sqrt(ROWS * curvatures) @ rotation
        self.design = torch.from_numpy(design)
        self.hessian = self.design.T @ self.design / ROWS + RIDGE * torch.eye(DIM, dtype=torch.float64)
        measured = self.design.T @ self.design / ROWS @ torch.from_numpy(rng.normal(size=DIM))
        self.optimum = torch.linalg.solve(self.hessian, measured)
        values, vectors = torch.linalg.eigh(self.hessian)
        self.alpha, self.beta = float(values[0]), float(values[-1])
        self.slowest = vectors[:, 0]
        self.label_noise = SIGMA * ROWS / float(self.design.square().sum()) ** 0.5

    @property
    def constants(self) -> Problem:
        """α, β, σ and f(w₀) − f*."""
        return Problem(self.alpha, self.beta, SIGMA, GAP)

    def at(self, gap: float, direction: Parameters) -> Parameters:
        """The model with f − f* = gap that lies in a direction from the optimum."""
        here = float(self.gaps((self.optimum + direction)[None])[0])
        model: Parameters = self.optimum + direction * math.sqrt(gap / here)
        return model

    def gaps(self, models: Models) -> Losses:
        """f(w) − f* of each model."""
        away = models - self.optimum
        return np.asarray(((away @ self.hessian) * away).sum(1) / 2)

    def step(self, model: Parameters, rng: np.random.Generator) -> Parameters:
        """One step of size 1/β along a gradient whose labels are measured anew."""
        noise = torch.from_numpy(rng.normal(scale=self.label_noise, size=ROWS))
        gradient: Parameters = self.hessian @ (model - self.optimum) - self.design.T @ noise / ROWS
        return -gradient / self.beta


class Clients:
    """Answers the protocol's requests: the first k clients are honest, the others know everything."""

    def __init__(self, problem: LeastSquares, rng: np.random.Generator) -> None:
        self.problem = problem
        self.rng = rng
        self.failed = False
        """Whether any vote had fewer right honest voters than a quota."""

    def answer(self, request: Request) -> Replies:
        """What comes back, by client."""
        if isinstance(request, Train):
            return [(client, self.train(request, client)) for client in request.offers]
        assert isinstance(request, Vote)
        return zip(request.voters, self.ballots(request), strict=True)

    def train(self, request: Train, client: Client) -> Trained:
        """An honest gradient step from the model that it likes best, or a creeping one."""
        offered, models = request.offers[client], request.models.parameters
        if client >= ELECTORATE.num_honest:
            return Trained(offered[0], self.creep(models) - models[offered[0]])
        seen, _ = self.estimates(models[list(offered)], voters=1)
        parent = offered[int(seen[0].argmin())]
        return Trained(parent, self.problem.step(models[parent], self.rng))

    def creep(self, models: Models) -> Parameters:
        """A model that is worse than the best by almost as much as an oracle can miss."""
        gaps = self.problem.gaps(models)
        away = models[int(gaps.argmin())] - self.problem.optimum
        return self.problem.at(gaps.min() + 1.9 * ETA, away if gaps.min() > 0 else self.problem.slowest)

    def estimates(self, models: Models, voters: int) -> tuple[Losses, NDArray[np.bool_]]:
        """What (η, p) oracles say, one row a voter, and which rows are right to within η throughout."""
        gaps = self.problem.gaps(models)
        side = np.where(np.arange(len(gaps)) == gaps.argmin(), 1.0, -1.0)
        accurate = self.rng.random((voters, len(gaps))) < P
        wild = side * self.rng.uniform(10, 20, accurate.shape)
        return np.where(accurate, gaps + ETA * side, wild), np.all(accurate, axis=1)

    def ballots(self, request: Vote) -> list[Ballot]:
        """Honest ballots, then those of colluders who want the best models gone."""
        seen, right = self.estimates(request.models, ELECTORATE.num_honest)
        self.failed |= int(right.sum()) < ELECTORATE.quota()
        honest = honest_ballots(seen, request.ranks)
        gaps, ages = self.problem.gaps(request.models), request.candidates.ages
        attackers = ELECTORATE.num_clients - ELECTORATE.num_honest
        if request.ranks == 1:
            others = [position for position in range(len(gaps)) if position != gaps.argmin()]
            return [*honest, *lift(others, first_choices(honest, len(gaps)), ages, attackers)]
        losses = np.tile(gaps, (attackers, 1))
        return [*honest, *coordinated(losses, losses, honest, ages, request.seats, request.ranks)]


def play(
    problem: LeastSquares, rule: ParentRule, candidates: int, run: int, rounds: int
) -> NDArray[np.float64] | None:
    """f(w_t) − f* of the best model of the list, round by round; None if a vote failed."""
    rng = rng_for(run, "convex", rule, candidates)
    clients = Clients(problem, rng)
    rules = Rules(
        proposals=(proposals.client,),
        elect=plurality if candidates == 1 else ranked,
        ranked=candidates > 1,
        candidates=candidates,
        workers=candidates,
        favourite_parents=rule == "favourite",
    )
    models = ModelList.initial(problem.at(GAP, problem.slowest), ELECTORATE.list_size)
    best = [problem.gaps(models.parameters).min()]
    for index in range(rounds):
        round_ = lid_round(models, index, range(ELECTORATE.num_clients), rng, rules)
        models = drive(round_, clients.answer).models
        best.append(problem.gaps(models.parameters).min())
    return None if clients.failed else np.array(best)


@dataclass(frozen=True)
class Curve:
    """The mean over runs beside the bound."""

    rule: ParentRule
    candidates: int
    runs: int
    failed: int
    """Runs in which a vote failed; the theorem does not speak of them, and they are left out."""
    floor: float
    measured: tuple[float, ...]
    error: tuple[float, ...]
    """Standard errors of the means."""
    bound: tuple[float, ...]

    @property
    def closest(self) -> float:
        """The largest ratio of what was measured, with three standard errors, to the bound."""
        high = np.array(self.measured) + 3 * np.array(self.error)
        return float((high[1:] / np.array(self.bound)[1:]).max())


def bound_for(problem: LeastSquares, rule: ParentRule, candidates: int) -> Convergence:
    """The corrected bound."""
    accuracy = ELECTORATE.ballot_accuracy(P, candidates)
    failure = vote_failure(ELECTORATE, accuracy)
    return corrected_bound(
        ELECTORATE, problem.constants, rule=rule, eta=ETA, p=P, candidates=candidates, failure=failure
    )


def measure(rule: ParentRule, candidates: int, runs: int = RUNS, rounds: int = ROUNDS) -> Curve:
    """Many runs of one setting."""
    problem = LeastSquares()
    played = [play(problem, rule, candidates, run, rounds) for run in range(runs)]
    gaps = np.array([run for run in played if run is not None])
    bound = bound_for(problem, rule, candidates)
    return Curve(
        rule,
        candidates,
        runs=runs,
        failed=runs - len(gaps),
        floor=bound.floor,
        measured=tuple(gaps.mean(0).tolist()),
        error=tuple((gaps.std(0, ddof=1) / len(gaps) ** 0.5).tolist()),
        bound=tuple(bound.bound(index) for index in range(rounds + 1)),
    )


def as_row(curve: Curve) -> dict[str, Any]:
    """A curve for the file: every few rounds, to six digits."""
    lines = {name: getattr(curve, name)[::EVERY] for name in ("measured", "error", "bound")}
    thinned = {name: [round(value, 6) for value in values] for name, values in lines.items()}
    return asdict(curve) | {"closest": round(curve.closest, 3), "floor": round(curve.floor, 6)} | thinned


def points(curves: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the figure draws, from the rows of the file."""
    for curve in curves:
        panel = f"{curve['rule']} parents, {curve['candidates']} candidate" + "s" * (curve["candidates"] > 1)
        for line in ("measured", "bound"):
            for index, value in enumerate(curve[line]):
                yield {"panel": panel, "line": line, "round": index * EVERY, "gap": value}


def draw(curves: list[dict[str, Any]], path: Path) -> None:
    """One panel a setting, as SVG."""
    import altair as alt

    rows = list(points(curves))
    colours = alt.Scale(domain=["bound", "measured"], range=["#D55E00", "#0072B2"])
    heights = alt.Scale(type="log", domain=[0.005, 1], nice=False)
    lines = (
        alt.Chart()
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("round:Q", title="round", axis=alt.Axis(grid=False, tickCount=4), scale=alt.Scale(nice=False)),
            y=alt.Y("gap:Q", title="f − f* of the best model", scale=heights, axis=alt.Axis(values=[0.01, 0.1, 1])),
            color=alt.Color("line:N", title=None, scale=colours),
        )
        .properties(width=250, height=160)
    )
    order = list(dict.fromkeys(row["panel"] for row in rows))
    chart = lines.facet(facet=alt.Facet("panel:N", title=None, sort=order), columns=2, data=alt.InlineData(rows))
    chart.save(str(path))


def main() -> None:
    """Measure, print and write."""
    console, rows = Console(), []
    for rule, candidates in SETTINGS:
        curve = measure(rule, candidates)
        text = f"{rule}, c = {candidates}: ends at {curve.measured[-1]:.4f}, bound {curve.bound[-1]:.4f}"
        console.print(f"{text}, closest {curve.closest:.2f}, {curve.failed} failed", highlight=False)
        rows.append(as_row(curve))
    constants = {name: round(value, 6) for name, value in asdict(LeastSquares().constants).items()}
    problem = constants | dict(eta=ETA, p=P, every=EVERY) | asdict(ELECTORATE)
    (DOCS / "convex.json").write_text(json.dumps({"problem": problem, "curves": rows}, indent=1) + "\n")
    draw(rows, DOCS / "convex.svg")


if __name__ == "__main__":
    main()
