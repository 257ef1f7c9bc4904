"""The auditor of a federation on one machine: all its data is here, and so is the list of its liars."""

from dataclasses import dataclass

from lidfl.data.shards import FederatedData
from lidfl.protocol import Canonical, ModelList, Outcome
from lidfl.runs.directory import Summary
from lidfl.runs.record import Findings
from lidfl.settings.experiment import Experiment
from lidfl.simulation.simulator import Simulator
from lidfl.types import Parameters


@dataclass(frozen=True)
class LocalAudit:
    """What the simulation of the same experiment can tell the server of a real federation."""

    simulator: Simulator

    @property
    def data(self) -> FederatedData:
        """What all clients hold."""
        return self.simulator.data

    def initial(self) -> Parameters:
        """The model to begin with: the simulation's."""
        return self.simulator.network.initial()

    def canonical(self) -> Canonical | None:
        """The form that models are brought into: the simulation's."""
        return self.simulator.canonical()

    def findings(self, outcome: Outcome, *, test: bool) -> Findings:
        """What there is to tell of a round, and, to test, how good the list now is."""
        return self.simulator.auditor.findings(outcome, test=test)

    def result(self, models: ModelList) -> Summary:
        """How good the final list is."""
        return self.simulator.auditor.result(models)


def open_audit(experiment: Experiment) -> LocalAudit:
    """Begin the audit of an experiment, with its data loaded and its model built."""
    return LocalAudit(Simulator.of(experiment))
