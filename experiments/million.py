"""From a thousand to a million clients with one committee: what a round takes, in time and memory.

    python -m experiments.million       writes docs/million.json

Each size runs in a process of its own, since memory is measured as the most that the process ever held. The
committee is what `lidfl plan` asks for with a million clients, 40 % of them honest, a list of 2 and one failed
round in a thousand; clients draw their images from FEMNIST when they are asked.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rich.console import Console

from lidfl.runs.loop import drive
from lidfl.runs.server import Server, first_list
from lidfl.settings.experiment import Experiment
from lidfl.simulation.simulator import Simulator
from lidfl.theory.committees import committee_size
from lidfl.theory.votes import Electorate

CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
FAILURE = 1e-3
ROUNDS = 40
WARM_UP = 5


def committee() -> int:
    """How many voters keep an honest quota, for a million clients."""
    size = committee_size(Electorate.smallest(CLIENTS[-1], CLIENTS[-1] * 2 // 5), FAILURE)
    assert size is not None
    return size.onwards


def measure(clients: int) -> dict[str, Any]:
    """The median time of a round and the most memory, with so many clients."""
    experiment = Experiment(dataset="femnist", num_clients=clients, partition="drawn", voters=committee())
    simulator, server = Simulator.of(experiment), Server(experiment)
    models = first_list(experiment, simulator.network.initial())
    times = []
    for round_index in range(WARM_UP + ROUNDS):
        began = perf_counter()
        models = drive(server.round(models, round_index), simulator.answer).models
        times.append(perf_counter() - began)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    milliseconds = 1000 * median(times[WARM_UP:])
    return {"clients": clients, "voters": experiment.voters, "ms": milliseconds, "mib": kilobytes / 1024}


def main() -> None:
    """Measure every size in a process of its own, and write what was found."""
    found = []
    for clients in CLIENTS:
        command = [sys.executable, "-m", "experiments.million", str(clients)]
        found.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        text = f"{clients:>9,} clients: {found[-1]['ms']:.1f} ms a round, {found[-1]['mib']:.0f} MiB"
        Console().print(text, highlight=False)
    Path("docs/million.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(measure(int(sys.argv[1]))))
    else:
        main()
