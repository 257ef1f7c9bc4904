"""What a report is made from: the records of one run, or the results of many; nothing they name is imported."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lidfl.errors import LidflError
from lidfl.report.lineage import Lineage, trace
from lidfl.runs.clients import ClientTold, read_clients
from lidfl.runs.directory import RunDirectory, Summary
from lidfl.runs.record import RoundRecord
from lidfl.settings.experiment import Experiment
from lidfl.studies.store import Kept, accuracy_curve, deployed_curve, longest, read_kept
from lidfl.studies.tables import read_results

MOST_MODELS = 10_000_000
"""No list is longer."""


@dataclass(frozen=True)
class RunRecords:
    """A run as its directory tells it."""

    directory: RunDirectory
    experiment: Experiment
    records: Sequence[RoundRecord]
    summary: Summary | None
    """The result; None if the run is unfinished."""

    @classmethod
    def read(cls, path: Path) -> "RunRecords":
        """The run in a directory, as far as it has come."""
        directory = RunDirectory(path)
        records = list(directory.records()) if directory.rounds_file.exists() else []
        if not records:
            raise LidflError(f"{path} has no finished round yet; report on it once it has")
        summary = directory.summary() if directory.is_finished else None
        experiment = directory.experiment()
        refuse_riddles(records, experiment.list_size, directory.rounds_file)
        return cls(directory, experiment, records, summary)

    @cached_property
    def tested(self) -> list[RoundRecord]:
        """The rounds after which the list was tested."""
        return [record for record in self.records if record.tested]

    @cached_property
    def clients(self) -> list[ClientTold]:
        """What a simulation has told of each client."""
        return read_clients(self.directory.path)

    @property
    def diverged_at(self) -> int | None:
        """The round after which no client could train the single model any more; None if it never came to that."""
        found: int | None = (self.summary or {}).get("diverged_at")
        return found

    @property
    def stopped_at(self) -> int | None:
        """The round after which a callback ended the run; None if none did."""
        found: int | None = (self.summary or {}).get("stopped_at")
        return found

    @property
    def rounds_done(self) -> int:
        """How many rounds are recorded."""
        return len(self.records)

    @property
    def seconds(self) -> float:
        """The time of all rounds."""
        return sum(record.seconds for record in self.records)

    @cached_property
    def lineage(self) -> Lineage:
        """The family tree of its models."""
        return trace(self.records, self.experiment.list_size)


def refuse_riddles(records: Sequence[RoundRecord], list_size: int, file: Path) -> None:
    """Refuse records that speak of models nobody made: each line may be whole, and yet one be missing."""
    known = set(range(min(list_size, MOST_MODELS)))
    for number, record in enumerate(records, start=1):
        parents = {parent for birth in record.born for parent in birth.parents}
        born = {birth.model for birth in record.born}
        told = {*record.votes, *record.removed, *record.loss, *record.accuracy}
        if not (parents <= known and told - born <= known):
            raise LidflError(
                f"{file}: line {number} names a model that no line made; run it again with overwrite=True"
            )
        known |= born


def read_runs(source: Path) -> list[Kept]:
    """The finished runs of a folder or of a results file."""
    return read_folder(source) if source.is_dir() else read_file(source)


def read_folder(folder: Path) -> list[Kept]:
    """The finished runs below a folder."""
    found = [(result, RunDirectory(result[0].out)) for result in read_results(folder)]
    return [Kept(*result, accuracy_curve(place), {}, deployed_curve(place)) for result, place in found]


def read_file(path: Path) -> list[Kept]:
    """The runs of a results file; of those that differ in nothing but their rounds, the longest."""
    runs = longest(read_kept(path).values())
    if not runs:
        raise LidflError(f"there are no results in {path}; fill it with `lidfl reproduce {path.stem}`")
    return runs
