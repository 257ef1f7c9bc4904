"""Where the time of a long run goes, with everything on: records, checkpoints and a live display."""

import os
import tempfile
from collections import Counter
from time import perf_counter

from rich.console import Console
from rich.live import Live

from benchmarks.problem import has_femnist
from lidfl.cli.display import LiveView
from lidfl.runs.loop import Progress
from lidfl.settings.experiment import Experiment
from lidfl.settings.headline import headline
from lidfl.simulation.simulator import run

WORK = ["training", "evaluation", "voting", "protocol", "testing"]


def long_run(rounds: int = 1500) -> dict[str, float]:
    """Seconds of a LiD-FL run (LR, 60 % Byzantine, sign flip), by phase; what is left is bookkeeping."""
    phases: Counter[str] = Counter()
    times: list[float] = []

    def watch(progress: Progress) -> None:
        times.append(perf_counter())
        if len(times) > 1:  # the time between two rounds ends with the later one
            phases.update(progress.record.phases)

    dataset = "femnist" if has_femnist() else "digits"
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        experiment = Experiment(dataset=dataset, rounds=rounds, out=f"{folder}/run")
        view, console = LiveView(experiment, headline(experiment)), Console(file=nowhere, force_terminal=True)

        def observe(progress: Progress) -> None:
            view.observe(progress)
            watch(progress)

        with Live(get_renderable=view.render, console=console, refresh_per_second=4):
            run(experiment, observe=observe)
    total = times[-1] - times[0]
    seconds = {phase: phases[phase] for phase in WORK}
    return seconds | {"bookkeeping": total - sum(seconds.values()), "total": total}
