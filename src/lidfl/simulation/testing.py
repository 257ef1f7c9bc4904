"""How good a list is, told by someone who holds all data and knows who is honest: an auditor."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lidfl.protocol import Birth, ModelList, Outcome
from lidfl.runs.directory import Summary
from lidfl.runs.record import Findings, finite
from lidfl.simulation.cast import Cast
from lidfl.simulation.judging import Judges


@dataclass(frozen=True)
class Auditor:
    """Tests lists on all clients' test data, and tells which models attackers had a hand in."""

    cast: Cast
    judges: Judges

    def findings(self, outcome: Outcome, *, test: bool) -> Findings:
        """What there is to tell of a round."""
        found = Findings(honest=self.origins(outcome.record.born))
        if not test:
            return found
        models = outcome.models
        losses = self.judges.losses(models, self.cast.audience)
        return replace(
            found,
            loss=dict(zip(models.ids, map(finite, losses.mean(0)), strict=True)),
            accuracy=dict(zip(models.ids, self.accuracies(models).mean(0).tolist(), strict=True)),
            deployed_accuracy=self.deployed_accuracy(models),
        )

    def origins(self, births: Iterable[Birth]) -> dict[int, bool | None]:
        """Of each new model whether its updates are all honest; what the server made of models is neither."""
        byzantine = self.cast.byzantine
        return {b.model: byzantine.isdisjoint(b.clients) if b.clients else None for b in births}

    def result(self, models: ModelList) -> Summary:
        """How good a final list is. `test_accuracy` is the paper's: each model's mean over clients, the best."""
        accuracies = self.accuracies(models).mean(0)
        return {
            "test_accuracy": float(accuracies.max()),
            "deployed_accuracy": self.deployed_accuracy(models),
            "validation_loss": finite(self.judges.losses(models, self.cast.audience).mean(0).min()),
            "per_model_accuracy": {str(m): float(a) for m, a in zip(models.ids, accuracies, strict=True)},
        }

    def accuracies(self, models: ModelList) -> NDArray[np.float64]:
        """The test accuracy of every model for each client of the audience, (clients, models)."""
        return self.judges.accuracies(models, self.cast.audience)

    def deployed_accuracy(self, models: ModelList) -> float:
        """The mean test accuracy of honest clients, each with the model of its lowest validation loss."""
        chosen = self.judges.losses(models, self.cast.audience).argmin(1)
        deployed = self.accuracies(models)[np.arange(len(chosen)), chosen]
        return float(deployed[~self.cast.are_byzantine(self.cast.audience.tolist())].mean())
