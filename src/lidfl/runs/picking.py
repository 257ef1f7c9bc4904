"""What a client does at the end: judge every model of the list on its own data, and take the best."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from lidfl.data import load_dataset
from lidfl.data.base import Dataset
from lidfl.data.federated import check_statistics
from lidfl.data.shards import Statistics
from lidfl.errors import LidflError
from lidfl.files import write_atomically
from lidfl.learning.client import (
    LocalTraining,
    candidate_losses,
    candidate_values,
    draw_batches,
    image_hits,
    local_update,
    logits,
)
from lidfl.learning.models import build_model
from lidfl.learning.parameters import Network
from lidfl.methods.deploying import OwnData, trained_alone
from lidfl.methods.deploying import deploy as deploy_rules
from lidfl.plugins import load_recorded
from lidfl.protocol import ModelList
from lidfl.registry import Bound
from lidfl.runs.directory import Inputs, RunDirectory
from lidfl.seeds import rng_for, seed_for
from lidfl.settings.answers import as_vector
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import load_data, measure_of
from lidfl.types import Models, Parameters


@dataclass(frozen=True)
class Choice:
    """How a client sees the list, and what it takes."""

    ids: tuple[int, ...]
    losses: NDArray[np.float64]
    """The client's judgement of each model, on its validation images."""
    accuracies: NDArray[np.float64]
    """The accuracy of each model on the client's test images."""
    position: int | None
    """Where in the list the chosen model stands; None if it was made from several."""
    accuracy: float
    """The accuracy of what it takes on its test images."""
    path: Path
    """The file that it was written to."""


@dataclass(frozen=True)
class Judged:
    """How a client sees the list, and what it makes of it, before anything is written."""

    network: Network
    chosen: Parameters
    ids: tuple[int, ...]
    losses: NDArray[np.float64]
    accuracies: NDArray[np.float64]
    position: int | None
    accuracy: float


Split: TypeAlias = tuple[Tensor, Tensor]
"""Images and labels."""


@dataclass(frozen=True)
class Holdings:
    """The data of a client; the same images to judge and to test with if it has no test set."""

    validation: Split
    test: Split
    train: Split | None = None


class PickingOwn:
    """What a client can do with its own data when it picks."""

    def __init__(
        self,
        network: Network,
        experiment: Experiment,
        held: Holdings,
        num_classes: int,
        client: int | None = None,
    ) -> None:
        self.client = client
        """Whose batches are drawn; somebody from outside has batches of its own."""
        self.network = network
        self.experiment = experiment
        self.held = held
        self.measure = measure_of(experiment, num_classes)
        e = experiment
        self.work = LocalTraining(e.local_steps, e.batch_size, e.learning_rate, e.momentum)

    def losses(self, models: Models) -> NDArray[np.float64]:
        """Its judgement of each model."""
        return candidate_losses(self.network, models, *self.held.validation, self.measure)

    def values(self, models: Models) -> NDArray[np.float64]:
        """The same image by image."""
        return candidate_values(self.network, models, *self.held.validation, self.measure).numpy()

    def alone(self, rounds: int) -> Parameters:
        """What it would have without the others."""
        return trained_alone(self, rounds)

    def trained(self, model: Parameters, part: int) -> Parameters:
        """A model after one more local training."""
        if self.held.train is None:
            raise LidflError('to tune a model takes training data: give client=…, or deploy="alike"')
        images, labels = self.held.train
        seed, place = self.experiment.seed, (part,) if self.client is None else (part, self.client)
        rows = torch.from_numpy(draw_batches(len(labels), self.work, rng_for(seed, "tune", *place)))
        dropout = seed_for(seed, "dropout", *place)
        reached = model + local_update(self.network, model, images, labels, rows, self.work, dropout_seed=dropout)
        return reached if bool(reached.isfinite().all()) else model

    def first(self) -> Parameters:
        """The model that everything began with."""
        return self.network.initial()


def pick(
    run: Path | str,
    *,
    dataset: str | None = None,
    client: int | None = None,
    out: Path | str | None = None,
    deploy: str | None = None,
) -> Choice:
    """Make of a finished run's list the model that serves one client's data best, and write it.

    The data is client `client`'s share of the run's data set, or of another one given as `dataset`; without a
    client, all of `dataset` is the client's own. `deploy` names the rule, if not the run's. The file holds the
    model's state dict, for a plain nn.Module.
    """
    directory = RunDirectory(run)
    experiment, inputs = directory.experiment(), directory.inputs()
    held = holdings(experiment, inputs.statistics, dataset, client)
    judged = judge_list(directory, held, client=client, deploy=deploy)
    default = directory.path / ("picked.safetensors" if client is None else f"client-{client}.safetensors")
    return write_choice(judged, experiment, Path(out) if out else default)


def judge_list(
    directory: RunDirectory, held: Holdings, *, client: int | None = None, deploy: str | None = None
) -> Judged:
    """How a client with its own data sees a finished run's list, and what it makes of it."""
    experiment, inputs = directory.experiment(), directory.inputs()
    final = offered(directory.final_state().models, experiment, client)
    rule = deploy_rules.resolve(deploy or experiment.deploy)
    check_classes(held, inputs.num_classes)
    check_shape(held, inputs.image_shape)
    network = network_of(experiment, inputs)
    own = PickingOwn(network, experiment, held, inputs.num_classes, client)
    return judged_by(rule, own, final, network, held.test, experiment.rounds)


def judged_by(
    rule: Bound[Parameters],
    own: OwnData,
    final: ModelList,
    network: Network,
    tested: Split | None,
    rounds: int,
) -> Judged:
    """What a rule makes of a list with somebody's own data; accuracies are on `tested`, if they can be told."""
    made = rule(final.parameters, own, rounds=rounds)
    chosen = as_vector("deploy rule", rule.name, made, final.parameters[0])
    rows = (*final.parameters, chosen)
    found = [accuracy(network, row, tested) if tested else np.nan for row in rows]
    position, losses = place_of(chosen, final.parameters), own.losses(final.parameters)
    return Judged(network, chosen, final.ids, losses, np.array(found[:-1]), position, found[-1])


def write_choice(judged: Judged, experiment: Experiment, path: Path) -> Choice:
    """Write what was made of a list."""
    number = judged.ids[judged.position] if judged.position is not None else None
    write_model(path, judged.network, judged.chosen, number, experiment)
    return Choice(judged.ids, judged.losses, judged.accuracies, judged.position, judged.accuracy, path)


def network_of(experiment: Experiment, inputs: Inputs) -> Network:
    """The network whose parameters a run's models are."""
    load_recorded(experiment.plugin)
    seed = seed_for(experiment.seed, "model")
    return Network(build_model(experiment.model, inputs.image_shape, inputs.num_classes, seed))


def offered(final: ModelList, experiment: Experiment, client: int | None) -> ModelList:
    """The models that a client has to choose from: all, or its own where everyone keeps one."""
    if not experiment.plays.personal:
        return final
    return final.without(place for place in range(len(final)) if place != client)


def check_classes(held: Holdings, num_classes: int) -> None:
    """Refuse data with classes that the models do not have."""
    if max(int(held.validation[1].max()), int(held.test[1].max())) >= num_classes:
        raise LidflError(f"the data has classes that the models do not: they know 0 … {num_classes - 1}")


def check_shape(held: Holdings, image_shape: tuple[int, int, int]) -> None:
    """Refuse images of another shape than the models take."""
    found = tuple(held.validation[0].shape[1:])
    if found != image_shape:
        raise LidflError(f"the images are {found}, and the models take {image_shape}; bring matching images")


def place_of(model: Parameters, models: Models) -> int | None:
    """Where in a list a model stands, if it is one of it."""
    return next((place for place, row in enumerate(models) if torch.equal(row, model)), None)


def holdings(experiment: Experiment, statistics: Statistics, dataset: str | None, client: int | None) -> Holdings:
    """One client's images, standardised as those were that the models were trained on."""
    if client is None:
        if dataset is None:
            raise LidflError('whose data? give client=…, or dataset="npz:path" for your own')
        return _whole(load_dataset(dataset, rng_for(experiment.seed, "dataset")), statistics)
    check_client(experiment, client)
    # Only the data is needed: attacks and rules that the run names may not be at hand here.
    same = Experiment.unchecked(vars(experiment) | ({"dataset": dataset} if dataset else {}))
    data = load_data(same, statistics)
    return Holdings(data.validation.of(client), data.test.of(client), data.train.of(client))


def check_client(experiment: Experiment, client: int) -> None:
    """Refuse a client that a run does not have."""
    if not 0 <= client < experiment.num_clients:
        raise LidflError(f"there is no client {client}; the run has clients 0 … {experiment.num_clients - 1}")


def accuracy(network: Network, parameters: Parameters, test: tuple[Tensor, Tensor]) -> float:
    """The share of images that a model gets right."""
    images, labels = test
    return float(image_hits(logits(network, parameters, images), labels).double().mean())


def _whole(data: Dataset, statistics: Statistics) -> Holdings:
    check_statistics(statistics, data.images)
    images = statistics.apply(data.images)
    labels = torch.from_numpy(data.labels)
    return Holdings((images, labels), (images, labels))


def write_model(
    path: Path, network: Network, model: Parameters, model_id: int | None, experiment: Experiment
) -> None:
    """Write a model as a state dict, with its name and where it comes from."""
    metadata = {
        "model": experiment.model,
        "dataset": experiment.dataset,
        "run": experiment.name,
        "id": "several" if model_id is None else str(model_id),
        "lidfl": version("lidfl"),
    }
    try:
        write_atomically(path, save(network.state_dict(model), metadata))
    except OSError as error:
        raise LidflError(f"cannot write {path}: {error.strerror}; set out=…") from None
