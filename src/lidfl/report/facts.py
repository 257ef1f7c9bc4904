"""The numbers at the top of a run's page."""

from lidfl.report.figures.margin import smallest_margin, told_margins
from lidfl.report.page import Fact
from lidfl.report.read import RunRecords
from lidfl.runs.costs import costs_of
from lidfl.studies.sweep import DEPLOYED, PAPERS

RESULTS = {
    DEPLOYED: "accuracy that honest clients deploy",
    "deployed_worst": "deployed by the worst of them",
    PAPERS: "best model of the list, the paper's measure",
}
"""The accuracies at the top of a run's page."""


def run_facts(run: RunRecords) -> list[Fact]:
    """The numbers at the top of a run's page."""
    experiment = run.experiment
    facts = accuracy_facts(run)
    facts.append(Fact(f"{experiment.num_byzantine} of {experiment.num_clients}", "clients are Byzantine"))
    margins = told_margins(run.records)
    if margins:
        _, smallest = smallest_margin(margins)
        facts.append(Fact(str(smallest), "ballots: the smallest vote margin"))
    done = f"{run.rounds_done:,}"
    total = "" if run.rounds_done == experiment.rounds else f" of {experiment.rounds:,}"
    return [*facts, Fact(done + total, "rounds"), Fact(f"{run.seconds:.1f} s", "spent in rounds"), *cost_facts(run)]


def cost_facts(run: RunRecords) -> list[Fact]:
    """What a finished run cost all clients together."""
    costs = costs_of(run.experiment, run.summary) if run.summary else None
    if costs is None or run.summary is None:
        return []
    steps = costs.gradient_steps + run.summary.get("deployment_steps", 0)
    facts = [Fact(f"{steps:,}", "gradient steps of all clients")]
    if costs.bytes_sent is not None:
        facts.append(Fact(f"{costs.bytes_sent / 1e6:,.1f} MB", "models and updates sent"))
    return [*facts, Fact(f"{costs.ballots:,}", "ballots")] if costs.ballots else facts


def accuracy_facts(run: RunRecords) -> list[Fact]:
    """The result of a run; of an unfinished one, how good it was when last tested."""
    if run.summary:
        found = [(what, run.summary.get(name)) for name, what in RESULTS.items()]
        told = [Fact(f"{value:.3f}", what) for what, value in found if value is not None]
        return told if run.experiment.keeps_list else [fact for fact in told if fact.what != RESULTS[PAPERS]]
    if not run.tested:
        return []
    last = run.tested[-1]
    facts = [Fact(f"{last.best_accuracy:.3f}", "best model when last tested")]
    if last.deployed_accuracy is not None:
        facts.insert(0, Fact(f"{last.deployed_accuracy:.3f}", "deployed when last tested"))
    return facts
