"""A finished run, as Python sees it."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from lidfl.errors import LidflError
from lidfl.learning.client import logits
from lidfl.learning.parameters import Network
from lidfl.python import drawing
from lidfl.runs.directory import RunDirectory, Summary
from lidfl.runs.picking import Holdings, Judged, judge_list, network_of
from lidfl.runs.record import RoundRecord
from lidfl.settings.experiment import Experiment
from lidfl.settings.objects import checked_inputs, dataset_of_arrays
from lidfl.types import Parameters

if TYPE_CHECKING:
    import altair
    import pandas


class Records(Sequence[RoundRecord]):
    """The rounds of a run, in order."""

    def __init__(self, records: Sequence[RoundRecord]) -> None:
        self._records = records

    @overload
    def __getitem__(self, place: int) -> RoundRecord: ...

    @overload
    def __getitem__(self, place: slice) -> "Records": ...

    def __getitem__(self, place: int | slice) -> "RoundRecord | Records":
        return Records(self._records[place]) if isinstance(place, slice) else self._records[place]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<{len(self)} rounds; to_pandas() makes them a table>"

    def rows(self) -> list[dict[str, Any]]:
        """A row of plain numbers for each round; None where a round has none."""
        return [_row(record) for record in self]

    def to_pandas(self) -> "pandas.DataFrame":
        """The rounds as a table, indexed by their number from 1; it takes pandas."""
        try:
            import pandas
        except ImportError:
            raise LidflError("to_pandas() takes pandas: pip install pandas") from None
        return pandas.DataFrame(self.rows()).set_index("round")


def _row(record: RoundRecord) -> dict[str, Any]:
    losses = [loss for loss in record.loss.values() if loss is not None]
    return {
        "round": record.number,
        "test_accuracy": record.best_accuracy if record.tested else None,
        "deployed_accuracy": record.deployed_accuracy,
        "validation_loss": min(losses, default=None),
        "margin": record.margin,
        "candidates": len(record.born),
        "honest_candidates": sum(honest is True for honest in record.honest.values()),
        "removed": len(record.removed),
        "rejected": sum(record.rejected.values()),
        "skipped": record.skipped,
        "seconds": record.seconds,
    }


@dataclass(frozen=True)
class Picked:
    """What a client takes from a list, and how it sees the list."""

    module: torch.nn.Module
    """A plain module; what goes in is standardised first (`Run.standardised`)."""
    id: int | None
    """Its number in the list; None if it was made from several."""
    losses: Mapping[int, float]
    """The client's loss with each model of the list."""
    accuracies: Mapping[int, float]
    """The client's accuracy with each of them."""
    accuracy: float
    """Its accuracy with what it takes."""


class Run(Mapping[str, Any]):
    """A finished run: `lidfl.run` returns it, and `lidfl.Run("runs/first")` reads it again.

    As a mapping it is its summary: `run["test_accuracy"]`.
    """

    def __init__(self, path: Path | str) -> None:
        self.directory = RunDirectory(path)
        self.experiment: Experiment = self.directory.experiment()
        self.summary: Summary = self.directory.summary()

    def __getitem__(self, key: str) -> Any:
        return self.summary[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.summary)

    def __len__(self) -> int:
        return len(self.summary)

    def __repr__(self) -> str:
        return f"<Run {self.directory.path}: {self._in_words()}>"

    def _repr_html_(self) -> str:
        return f"<p><strong>{escape(str(self.directory.path))}</strong>: {escape(self._in_words())}</p>"

    def _in_words(self) -> str:
        names = {"test_accuracy": "test accuracy", "deployed_accuracy": "deployed"}
        told = [f"{word} {self[name]:.3f}" for name, word in names.items() if name in self]
        early = self.get("stopped_at") or self.get("diverged_at")
        return ", ".join([*told, f"{early or self['rounds']} rounds, {self['seconds']:.1f} s"])

    @cached_property
    def records(self) -> Records:
        """All that is known of each round."""
        return Records(list(self.directory.records()))

    @cached_property
    def _network(self) -> Network:
        return network_of(self.experiment, self.directory.inputs())

    def modules(self) -> list[torch.nn.Module]:
        """The final list as modules, ready to predict; what goes in is standardised first (`standardised`)."""
        return [self._module(row) for row in self.directory.final_state().models.parameters]

    def _module(self, parameters: Parameters) -> torch.nn.Module:
        module = deepcopy(self._network.module)
        module.load_state_dict(self._network.state_dict(parameters))
        return module.eval()

    def standardised(self, x: object) -> torch.Tensor:
        """Images or rows of features as the models take them."""
        inputs = self.directory.inputs()
        return inputs.statistics.apply(checked_inputs(x, inputs.image_shape))

    def pick(self, x: object, y: object, *, deploy: str | None = None) -> Picked:
        """What a client with this data takes from the list: by the run's rule, or as `deploy` says."""
        data = dataset_of_arrays(x, y)
        split = self.standardised(x), torch.from_numpy(data.labels)
        judged = judge_list(self.directory, Holdings(split, split), deploy=deploy)
        return self._picked(judged)

    def _picked(self, judged: Judged) -> Picked:
        def by_id(values: NDArray[np.float64]) -> dict[int, float]:
            return dict(zip(judged.ids, values.tolist(), strict=True))

        number = None if judged.position is None else judged.ids[judged.position]
        module = self._module(judged.chosen)
        return Picked(module, number, by_id(judged.losses), by_id(judged.accuracies), judged.accuracy)

    def predict(self, x: object, model: torch.nn.Module | None = None) -> NDArray[np.int64]:
        """The class of each row of x, by a module of this run; by default that of the lowest validation loss."""
        module = model or self.modules()[self._best()]
        network = Network(module)
        classes: NDArray[np.int64] = logits(network, network.initial(), self.standardised(x)).argmax(1).numpy()
        return classes

    def _best(self) -> int:
        """The place of the model that the last round's voters liked best."""
        losses, ids = self.records[-1].loss, self.directory.final_state().models.ids
        known = [(loss, place) for place, number in enumerate(ids) if (loss := losses.get(number)) is not None]
        return min(known)[1] if known else 0

    def report(self, out: Path | str | None = None) -> "drawing.InlinePage":
        """Write the report, one HTML page, and show it where a notebook shows its results."""
        return drawing.report_of(self.directory.path, Path(out) if out else None)

    def plot(self, *others: "Run") -> "altair.Chart | altair.LayerChart":
        """The test accuracy over rounds, as a chart; with others, what honest clients deploy in each."""
        return drawing.chart_of_runs([self.directory, *(other.directory for other in others)])
