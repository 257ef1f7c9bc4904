"""`lidfl` alone: what one can do next, which depends on the runs that are here."""

from collections.abc import Iterator
from pathlib import Path

from lidfl.runs.nearby import Found, runs_nearby

BEGIN = [
    ("lidfl demo", "see it: FedAvg and LiD-FL with 60 % of the clients Byzantine, in seconds"),
    ("lidfl run", "train on the embedded digits, and keep a list of models"),
]
ALWAYS = [
    ("lidfl plan --clients 35 --honest 14", "what the guarantee promises, in numbers and sentences"),
    ("lidfl list", "every data set, model, attack and rule that has a name"),
    ("lidfl --help", "all commands; `lidfl run --help` shows the options of one"),
]


def guide(folder: Path) -> str:
    """A few commands that make sense here, each with what it does."""
    lines = [*_after(runs_nearby(folder)), *ALWAYS]
    width = max(len(command) for command, _ in lines)
    return "".join(f"  {command:{width}}  {purpose}\n" for command, purpose in lines)


def _after(runs: list[Found]) -> Iterator[tuple[str, str]]:
    finished = next((run.path for run in runs if run.is_finished), None)
    unfinished = next((run for run in runs if not run.is_finished), None)
    if unfinished:
        yield unfinished.resume, "go on with the run that was stopped"
    if finished:
        yield f"lidfl report {finished}", "look at the latest run: accuracy, votes, the lineage of its list"
        yield f"lidfl pick {finished} --client 0", "take the model that client 0 would deploy"
    yield from BEGIN[1:] if finished else BEGIN
