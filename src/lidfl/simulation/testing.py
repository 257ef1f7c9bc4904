"""How good a list is, told by someone who holds all data and knows who is honest: an auditor."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lidfl.adversaries.backdoors import AnyTrigger
from lidfl.protocol import Birth, ModelList, Outcome
from lidfl.runs.directory import Summary
from lidfl.runs.record import Findings, finite
from lidfl.simulation.cast import Cast
from lidfl.simulation.certifying import certificate
from lidfl.simulation.deploying import Deployment
from lidfl.simulation.judging import Judges
from lidfl.types import Client


@dataclass(frozen=True)
class Auditor:
    """Tests lists on all clients' test data, and tells which models attackers had a hand in."""

    cast: Cast
    judges: Judges
    deployment: Deployment
    trigger: AnyTrigger | None = None
    """What attackers teach models to fall for."""

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
            **self._deployed_result(models),
            **self._class_result(models),
            "validation_loss": finite(self.judges.losses(models, self.cast.audience).mean(0).min()),
            "per_model_accuracy": {str(m): float(a) for m, a in zip(models.ids, accuracies, strict=True)},
            **self._success_result(models),
            **(certificate(models, self.judges, self.cast) if self._votes_by_majority else {}),
        }

    def accuracies(self, models: ModelList) -> NDArray[np.float64]:
        """The test accuracy of every model for each client of the audience, (clients, models)."""
        return self.judges.accuracies(models, self.cast.audience)

    def deployed_accuracy(self, models: ModelList) -> float:
        """The mean test accuracy of honest clients, each with the model that it takes."""
        return float(self._deployed(models).mean())

    def deployed_by_client(self, models: ModelList) -> dict[Client, float]:
        """The test accuracy of each honest client of the audience with the model that it takes, by client."""
        return dict(zip(self._honest, self._deployed(models).tolist(), strict=True))

    def _deployed(self, models: ModelList) -> NDArray[np.float64]:
        """The test accuracy of each honest client of the audience with the model that it takes."""
        return self.deployment.accuracies(models, self._honest)

    @property
    def _honest(self) -> list[Client]:
        """The honest clients over whom results are averaged."""
        return [client for client in self.cast.audience.tolist() if client not in self.cast.byzantine]

    @property
    def _votes_by_majority(self) -> bool:
        """Whether the method would have a list's models vote on each image, and certify it."""
        return self.deployment.experiment.plays.name == "flcert"

    def _deployed_result(self, models: ModelList) -> Summary:
        """What honest clients get: on average, at worst, and how much it differs between them."""
        deployed = np.sort(self._deployed(models))
        tenth = deployed[: max(1, len(deployed) // 10)]
        return {
            "deployed_accuracy": float(deployed.mean()),
            "deployed_worst": float(deployed[0]),
            "deployed_worst_decile": float(tenth.mean()),
            "deployed_deviation": float(deployed.std(ddof=1)) if len(deployed) > 1 else None,
            "deployment_steps": self.deployment.steps,
        }

    def _class_result(self, models: ModelList) -> Summary:
        """What honest clients get of each class: where one class is most of the data, an accuracy says little.

        The recall of a class is the share of its images, those of all honest clients together, that what their
        owners deploy gets right; balanced accuracy is the mean recall over classes (Brodersen et al. 2010).
        """
        counts = [
            self.judges.by_class(model, np.array(takers))
            for model, takers in self.deployment.groups(models, self._honest)
        ]
        right, images = (sum(of_group) for of_group in zip(*counts, strict=True))
        recalls = {label: right[label] / images[label] for label in np.flatnonzero(images).tolist()}
        shares = images[images > 0] / images.sum()
        return {
            "deployed_balanced_accuracy": float(np.mean(list(recalls.values()))),
            "deployed_lowest_recall": float(min(recalls.values())),
            "deployed_recall": {str(label): float(recall) for label, recall in recalls.items()},
            "classes": len(self.judges.classes),
            "smallest_class": float(shares.min()),
            "largest_class": float(shares.max()),
            **self._untested(recalls),
        }

    def _untested(self, recalls: Mapping[int, float]) -> Summary:
        """The classes of the data of which no honest client has a test image, if there are any."""
        missing = [label for label in self.judges.classes if label not in recalls]
        return {"untested_classes": missing} if missing else {}

    def _success_result(self, models: ModelList) -> Summary:
        """How often the trigger works: of triggered images of other classes, the share taken for its own."""
        if self.trigger is None:
            return {}
        clients = np.array(self._honest)
        found = self.judges.successes(self.trigger, models.parameters, clients)
        taken = self.deployment.taken(models, self._honest)
        deployed = [
            self.judges.successes(self.trigger, model[None], np.array([client]))[0, 0]
            for model, client in zip(taken, self._honest, strict=True)
        ]
        by_model = zip(models.ids, map(mean_of_those_who_can_tell, found), strict=True)
        return {
            "attack_success": mean_of_those_who_can_tell(np.array(deployed)),
            "per_model_attack_success": {str(model): value for model, value in by_model},
        }


def mean_of_those_who_can_tell(values: NDArray[np.float64]) -> float | None:
    """The mean over clients, but for those who have nothing to tell by; None if nobody has."""
    told = values[~np.isnan(values)]
    return float(told.mean()) if len(told) else None
