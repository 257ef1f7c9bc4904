"""What a run was, and what it cost."""

import subprocess
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from lidfl.runs.costs import run_costs
from lidfl.runs.directory import RunDirectory, Summary
from lidfl.runs.loop import has_diverged
from lidfl.runs.state import State
from lidfl.settings.experiment import Experiment


def summarise(experiment: Experiment, state: State, directory: RunDirectory) -> Summary:
    """A run without its accuracies, which not everybody can tell.

    A run whose single model diverged stops there, says when, and keeps its accuracy for the rounds left. One that
    an observer stopped says when, too.
    """
    records = list(directory.records())
    seconds = sum(record.seconds for record in records)
    early = state.rounds_done if state.rounds_done < experiment.rounds else None
    diverged = has_diverged(experiment, records[-1])
    margins = [record.margin for record in records if record.margin is not None]
    parameters = state.models.parameters.shape[1]
    costs = run_costs(records, parameters)
    return {
        "rounds": experiment.rounds,
        **(asdict(costs) if costs else {}),
        "seconds": seconds,
        "seconds_per_round": seconds / state.rounds_done,
        "smallest_margin": min(margins, default=None),
        "candidates_per_round": sum(len(record.born) for record in records) / len(records),
        "rounds_skipped": state.skipped,
        "diverged_at": early if diverged else None,
        "stopped_at": None if diverged else early,
        "parameters": parameters,
        "list_size": experiment.list_size,
        "num_byzantine": experiment.num_byzantine,
        "experiment": asdict(experiment),
        "version": version("lidfl"),
        "commit": source_commit(),
    }


@cache
def source_commit() -> str | None:
    """The commit of the clone that this code runs from, marked if files differ from it; None if installed."""
    clone = Path(__file__).parents[3]
    if not (clone / ".git").exists():
        return None
    command = ["git", "-C", str(clone), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=10"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
