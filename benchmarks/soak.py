"""A run of very many rounds: memory and time a round stay flat, and its record can still be read and reported.

python -m benchmarks.soak --rounds 20000
"""

import argparse
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from lidfl.report import write_report
from lidfl.runs.loop import Progress
from lidfl.settings.experiment import Experiment
from lidfl.simulation.simulator import run

PARTS = 10
"""Into how many parts a run is divided to compare them."""
MOST_GROWTH = 16 * 2**20
"""Bytes that the process may grow by from the second part to the last."""
MOST_SLOWER = 2.0
"""How many times the fastest part the last may take; machines have other things to do."""


def resident() -> int:
    """The memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def soak(rounds: int, folder: Path) -> tuple[list[int], list[float]]:
    """Memory and time at the end of each part of a long run."""
    memory: list[int] = []
    times = [perf_counter()]

    def watch(progress: Progress) -> None:
        if progress.record.number % (rounds // PARTS) == 0:
            memory.append(resident())
            times.append(perf_counter())

    brief = dict(local_steps=1, num_clients=10, eval_every=100, attack="gauss")
    run(Experiment.of(brief | dict(rounds=rounds, out=str(folder / "run"))), observe=watch)
    return memory, [end - start for start, end in pairwise(times)]


def main() -> None:
    """Run, report, and say whether it stayed flat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20_000)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        memory, seconds = soak(rounds, Path(folder))
        began = perf_counter()
        page, *_ = write_report([Path(folder) / "run"])
        drawn, size = perf_counter() - began, page.stat().st_size
        record = (Path(folder) / "run" / "rounds.jsonl").stat().st_size
    growth = memory[-1] - memory[1]
    each = ", ".join(f"{1e3 * part * PARTS / rounds:.1f}" for part in seconds)
    sys.stdout.write(f"{rounds:,} rounds; ms a round, part by part: {each}\n")
    sys.stdout.write(f"memory: {memory[1] >> 20} MB after two parts, {memory[-1] >> 20} MB at the end\n")
    sys.stdout.write(f"record {record >> 10:,} kB; report in {drawn:.1f} s, {size >> 10:,} kB\n")
    if growth > MOST_GROWTH or seconds[-1] > MOST_SLOWER * min(seconds):
        sys.exit("it does not stay flat")


if __name__ == "__main__":
    main()
