"""A plan: every number that the guarantee gives for a question, each with a sentence."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from lidfl.theory import committees, votes
from lidfl.theory.convergence import ParentRule, good_round, paper_bound
from lidfl.theory.joining import joining_promises
from lidfl.theory.promises import Promise
from lidfl.theory.question import Question
from lidfl.theory.votes import Electorate, Size

RULES: tuple[ParentRule, ...] = ("uniform", "favourite")
DOUBTED = tuple(Fraction(tenths, 10) for tenths in (8, 6, 4, 2, 1))
"""Honest fractions that a list may have to be safe for."""
STEPS = 16
"""Into how many steps a curve is divided: from one point to the next, the round grows by about the same factor."""


@dataclass(frozen=True)
class Section:
    """Promises that belong together."""

    title: str
    promises: tuple[Promise, ...]


@dataclass(frozen=True)
class Plan:
    """All promises, and the convergence bounds as curves."""

    question: Question
    sections: tuple[Section, ...]
    curve: tuple[dict[str, float], ...]
    """One entry a point: `round`, and the bounds `paper`, `uniform` and `favourite` after that round."""


def plan(question: Question) -> Plan:
    """Everything that the guarantee promises for a question."""
    sections = (
        Section("The list", tuple(_list_promises(question))),
        Section("If the fraction is not known", tuple(_doubt_promises(question))),
        Section("If others join", tuple(joining_promises(question))),
        Section("A vote", tuple(_vote_promises(question))),
        Section("Clients", tuple(_client_promises(question))),
        Section("Validation data", tuple(_validation_promises(question))),
        Section("Committees", tuple(_committee_promises(question))),
        Section("Convergence", tuple(_convergence_promises(question))),
    )
    return Plan(question, sections, tuple(curve(question, _rounds(question.rounds))))


def expected_honest(electorate: Electorate, voters: int) -> int:
    """How many of so many voters, drawn from all clients, are honest on average; rounded down."""
    return voters * electorate.num_honest // electorate.num_clients


def _doubt_promises(question: Question) -> Iterator[Promise]:
    """What it takes, and costs, not to know how many are honest."""
    electorate = question.electorate
    m, q = electorate.num_clients, electorate.list_size
    least = electorate.quota()
    told = f"A list of {q:,} is safe for every number of honest clients from {least:,} to {m:,}."
    lost = "With fewer, the others can vote out every good model."
    yield Promise("least_honest", "honest at least", least, f"{told} {lost}")
    uniform = (
        f"With uniform parents, if in truth all {m:,} are honest, it may take {q:,} times the rounds of one model,"
    )
    favourite = "as the best model is trained but once in so many; with favourite parents it takes no more."
    yield Promise("cost_of_caution", "cost of caution", q, f"{uniform} {favourite}")
    for fraction in DOUBTED:
        honest = votes.honest_count(m, fraction)
        if honest >= 1:
            safe = Electorate.smallest(m, honest).list_size
            told = f"A list that is safe if {float(fraction):.0%} or more are honest, that is {honest:,} clients."
            yield Promise(f"list_for_{int(100 * fraction)}", f"from {float(fraction):.0%} on", safe, told)


def _list_promises(question: Question) -> Iterator[Promise]:
    electorate = question.electorate
    m, k, margin = electorate.num_clients, electorate.num_honest, electorate.margin
    safe = Electorate.smallest(m, k).list_size
    shortest = f"with fewer than ⌊m/k⌋ = {safe:,} the other {m - k:,} clients could vote out every good one."
    yield Promise("list_size", "list size", electorate.list_size, f"Models that the server keeps: {shortest}")
    voters = question.voters or m
    told = f"Of {voters:,} first choices: a model that gets so many stays, whatever the others do."
    yield Promise("quota", "quota", electorate.quota(voters), told)
    if voters < m:
        margin = expected_honest(electorate, voters) - electorate.quota(voters)
        told = (
            f"Of {voters:,} voters {expected_honest(electorate, voters):,} are honest on average: so many more, or "
        )
        yield Promise(
            "margin", "margin", margin, f"{told}fewer, than the quota. See Committees for how often it fails."
        )
        return
    spare = f"{margin:,} may" if margin else "none may"
    holds = f"The quota holds: of {k:,} honest {'vote' if k == 1 else 'votes'} {spare} go astray."
    fails = f"The quota does not hold: {k:,} honest votes are too few. Take a list of {safe:,}."
    yield Promise("margin", "margin", margin, holds if margin >= 0 else fails)


def _vote_promises(question: Question) -> Iterator[Promise]:
    electorate, failure = question.electorate, question.vote_failure
    seen = electorate.list_size + question.candidates
    told = f"p^{seen}: an honest voter is right about all {seen} candidates, so about which is best by over 2η."
    yield Promise("ballot_accuracy", "ballot is right", question.accuracy, told)
    whose = f"{question.voters:,} drawn voters" if question.voters else f"{electorate.num_honest:,} honest voters"
    few = f"fewer than {electorate.quota(question.voters or None):,} of {whose}"
    right = "are honest and right" if question.voters else "are right"
    told = f"Exact chance that {few} {right}, so that the best model may go."
    yield Promise("vote_failure", "vote fails", failure, told)
    if not question.voters:
        yield from _bound_promises(question)
    told = f"Chance of that in {question.rounds:,} rounds. As long as it does not happen, the bounds below hold."
    yield Promise("vote_failure_rounds", "… in any round", votes.over_rounds(failure, question.rounds), told)


def _bound_promises(question: Question) -> Iterator[Promise]:
    electorate, accuracy = question.electorate, question.accuracy
    advantage = electorate.advantage(accuracy)
    told = f"Hoeffding's bound on it, exp(−2a²k), with a = {advantage:.3g}."
    told += "" if advantage > 0 else f" It says nothing: {_wanted(question)}."
    yield Promise("vote_failure_bound", "… Hoeffding", votes.hoeffding(electorate, accuracy), told)
    paper = votes.paper_hoeffding(electorate, accuracy)
    verdict = (
        "here it is below the truth" if paper < question.vote_failure else "here it happens to be above the truth"
    )
    told = f"The paper's lemma 4.2, exp(−2ak), lacks a square and is no bound; {verdict}."
    yield Promise("vote_failure_paper", "… the paper's", paper, told)


def _wanted(question: Question) -> str:
    """What would have to change where a ≤ 0."""
    least = votes.smallest_p(question.electorate, question.candidates)
    return f"p must be above {least:.4g}" if least < 1 else "the quota does not hold"


def _client_promises(question: Question) -> Iterator[Promise]:
    electorate, accuracy, delta = question.electorate, question.accuracy, question.delta
    bound = votes.clients_needed(electorate, accuracy, delta)
    exact = votes.exact_clients_needed(electorate, accuracy, delta)
    paper = votes.paper_clients_needed(electorate, accuracy, delta)
    never = f"No number of clients is enough: {_wanted(question)}."
    told = "Over a million, too many to look at one by one: take the bound." if bound else never
    if exact is not None:
        share = f"{float(100 * electorate.honest_fraction):.3g} % honest"
        told = f"From so many on, {share}, a vote of all fails with chance δ = {delta:g} at most."
        told += _sawtooth(exact)
    yield Promise("clients", "clients", exact.onwards if exact else None, told)
    yield Promise("clients_bound", "… Hoeffding", bound, "ln(1/δ)/(2γa²), by the bound above." if bound else never)
    verdict = "."
    if exact is not None and paper is not None:
        verdict = ": too few." if paper < exact.onwards else ": not proven, though here enough."
    told = f"ln(1/δ)/(2γa), by theorem 4.1 without the square{verdict}"
    yield Promise("clients_paper", "… the paper's", paper, told if bound else never)


def _sawtooth(size: Size) -> str:
    """What to add where smaller sizes hold too, but not all of them."""
    if size.smallest == size.onwards:
        return ""
    return f" {size.smallest:,} do as well, but not all sizes between: a quota is a whole number."


def _validation_promises(question: Question) -> Iterator[Promise]:
    eta, p, largest = question.eta, question.p, question.largest_loss
    never = "With p = 1 no number of images is enough."
    if question.classes:
        told = f"ln({question.classes:,}): with `--judge bounded` no image counts for more, so H is known."
        yield Promise("loss_range", "largest loss", largest, told)
    size = votes.validation_size(eta, p, largest)
    told = f"n', so that a client's loss is right to within η = {eta:g} with chance p = {p:g}: 2H² ln(4/(1−p))/η²."
    yield Promise("validation_size", "validation images", size, told if size else never)
    expected = votes.held_out_size(eta, p, largest)
    told = "H² ln(2/(1−p))/(2η²), if f is the expected loss and not that of the training data."
    yield Promise("validation_size_expected", "… expected loss", expected, told if expected else never)
    paper = votes.paper_validation_size(eta, p, largest)
    told = "2H² ln(2/(1−p))/η², by appendix A.3, which counts errors to one side only."
    yield Promise("validation_size_paper", "… the paper's", paper, told if paper else never)
    if question.images:
        error = votes.held_out_error(question.images, p, largest)
        told = f"η that {question.images:,} images a voter give, for the expected loss: H √(ln(2/(1−p))/(2n'))."
        yield Promise("eta_of_images", "… with these images", error, told if error else never)


def _committee_promises(question: Question) -> Iterator[Promise]:
    electorate, delta, rounds = question.electorate, question.delta, question.rounds
    told = f"From so many voters on, drawn anew, a round lacks an honest quota with chance {delta:g} at most."
    yield _committee("committee_round", "committee", electorate, delta, told)
    told = f"From so many on, any of {rounds:,} rounds does with chance {delta:g} at most."
    yield _committee("committee_rounds", "… for all rounds", electorate, votes.per_round(delta, rounds), told)
    if question.voters:
        failure = committees.committee_failure(electorate, question.voters)
        told = f"Chance that fewer than {electorate.quota(question.voters):,} of {question.voters:,} are honest."
        yield Promise("committee_failure", "this committee fails", failure, told)
        over = votes.over_rounds(failure, rounds)
        yield Promise("committee_failure_rounds", "… in any round", over, f"The same over {rounds:,} rounds.")


def _committee(key: str, name: str, electorate: Electorate, delta: float, told: str) -> Promise:
    size = committees.committee_size(electorate, delta)
    if size is None:
        return Promise(key, name, None, "No committee is safe where the quota does not hold.")
    return Promise(key, name, size.onwards, told + _sawtooth(size))


def _convergence_promises(question: Question) -> Iterator[Promise]:
    electorate, c = question.electorate, question.candidates
    whose = "The client is honest" if c == 1 else f"At least one of {c:,} clients is honest"
    told = {
        "uniform": f"{whose} and was given the best of {electorate.list_size:,} models.",
        "favourite": f"{whose} and chooses a model within 2η of the best.",
    }
    honest = good_round(electorate, "favourite", c, p=1)
    sure = "With favourite parents and a perfect oracle that alone makes a good round."
    yield Promise("honest_worker", "honest worker", honest, f"{whose}. {sure}")
    for rule in RULES:
        chance = good_round(electorate, rule, c, question.p)
        yield Promise(f"good_round_{rule}", f"good round, {rule}", chance, told[rule])
    for rule in RULES:
        bound = question.convergence(rule)
        life = f"{bound.half_life:,.0f}" if 100 <= bound.half_life < math.inf else f"{bound.half_life:.3g}"
        halves = f"ε, where the bound ends; what is left of the start halves every {life} rounds."
        vain = " It lies above the start: no progress is promised." if bound.floor >= question.gap else ""
        halves = halves if bound.rate < 1 else "Votes fail, so nothing is promised."
        floor = bound.floor if math.isfinite(bound.floor) else None
        yield Promise(f"floor_{rule}", f"floor, {rule}", floor, halves + vain)


def curve(question: Question, rounds: Iterable[int]) -> Iterator[dict[str, float]]:
    """The paper's bound and the two corrected ones after each of the given rounds."""
    bounds = {rule: question.convergence(rule) for rule in RULES}
    for index in rounds:
        paper = paper_bound(
            question.electorate, question.problem, question.eta, index, failure=question.vote_failure
        )
        yield {"round": index, "paper": paper} | {rule: bound.bound(index) for rule, bound in bounds.items()}


def landmarks(last: int) -> list[int]:
    """Rounds 0, 1, 10, 100, … and the last.

    >>> landmarks(150)
    [0, 1, 10, 100, 150]
    """
    return sorted({0, last} | {10**power for power in range(len(str(last))) if 10**power < last})


def _rounds(last: int) -> list[int]:
    """The rounds of a curve: equal ratios apart, rounded, with the landmarks added."""
    return sorted({*landmarks(last), *(round(last ** (step / STEPS)) for step in range(STEPS + 1))})


def as_dict(made: Plan) -> dict[str, Any]:
    """A plan for programs: its settings, each promise by its key, and the curve."""
    values = {setting.name: getattr(made.question, setting.name) for setting in fields(Question)}
    electorate = made.question.electorate
    values |= {"honest": electorate.num_honest, "honest_fraction": float(electorate.honest_fraction)}
    promises = [promise for section in made.sections for promise in section.promises]
    return {
        "settings": values | {"list_size": electorate.list_size},
        "figures": {promise.key: {"value": promise.value, "sentence": promise.sentence} for promise in promises},
        "curve": list(made.curve),
    }
