"""What a run was, and how long it took."""

import subprocess
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from lidfl.runs.directory import RunDirectory, Summary
from lidfl.runs.state import State
from lidfl.settings.experiment import Experiment


def summarise(experiment: Experiment, state: State, directory: RunDirectory) -> Summary:
    """A run without its accuracies, which not everybody can tell.

    A run whose single model diverged stops there, says when, and keeps its accuracy for the rounds left.
    """
    records = list(directory.records())
    seconds = sum(record.seconds for record in records)
    margins = [record.margin for record in records if record.margin is not None]
    return {
        "rounds": experiment.rounds,
        "seconds": seconds,
        "seconds_per_round": seconds / state.rounds_done,
        "smallest_margin": min(margins, default=None),
        "candidates_per_round": sum(len(record.born) for record in records) / len(records),
        "rounds_skipped": state.skipped,
        "diverged_at": state.rounds_done if state.rounds_done < experiment.rounds else None,
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
