"""The auditor of a federation on one machine: all its data is here, and so is the list of its liars."""

from dataclasses import dataclass

from lidfl.data.shards import FederatedData
from lidfl.learning.parameters import Network
from lidfl.protocol import Canonical, ModelList, Outcome
from lidfl.runs.directory import Summary
from lidfl.runs.record import Findings
from lidfl.runs.stopwatch import Stopwatch
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import build_network, canonical_form, load_data
from lidfl.simulation.cast import Cast
from lidfl.simulation.judging import Judges
from lidfl.simulation.testing import Auditor
from lidfl.types import Parameters


@dataclass(frozen=True)
class LocalAudit:
    """What the simulation's auditor can tell the server of a real federation."""

    experiment: Experiment
    data: FederatedData
    network: Network
    auditor: Auditor

    def initial(self) -> Parameters:
        """The model to begin with: the simulation's."""
        return self.network.initial()

    def canonical(self) -> Canonical | None:
        """The form that models are brought into: the simulation's."""
        return canonical_form(self.experiment, self.network, self.network.initial())

    def findings(self, outcome: Outcome, *, test: bool) -> Findings:
        """What there is to tell of a round, and, to test, how good the list now is."""
        return self.auditor.findings(outcome, test=test)

    def result(self, models: ModelList) -> Summary:
        """How good the final list is."""
        return self.auditor.result(models)


def open_audit(experiment: Experiment) -> LocalAudit:
    """Begin the audit of an experiment, with its data loaded and its model built."""
    data = load_data(experiment)
    network = build_network(experiment, data)
    return LocalAudit(experiment, data, network, Auditor(Cast.of(experiment), Judges(data, network, Stopwatch())))
