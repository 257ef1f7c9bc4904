"""What a client does at the end: judge every model of the list on its own data, and take the best."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from lidfl.data import load_dataset
from lidfl.data.base import Dataset
from lidfl.data.shards import Statistics
from lidfl.errors import LidflError
from lidfl.files import write_atomically
from lidfl.learning.client import candidate_losses, image_hits, logits
from lidfl.learning.models import build_model
from lidfl.learning.parameters import Network
from lidfl.protocol import ModelList
from lidfl.runs.directory import RunDirectory
from lidfl.seeds import rng_for
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import load_data
from lidfl.types import Parameters


@dataclass(frozen=True)
class Choice:
    """How a client sees the list."""

    ids: tuple[int, ...]
    losses: NDArray[np.float64]
    """The mean loss of each model on the client's validation images."""
    accuracies: NDArray[np.float64]
    """The accuracy of each model on the client's test images."""
    position: int
    """Where in the list the chosen model stands."""
    path: Path
    """The file that the chosen model was written to."""


@dataclass(frozen=True)
class OwnData:
    """The images that a client judges models with; the same ones twice if it has no test set."""

    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def pick(
    run: Path | str, *, dataset: str | None = None, client: int | None = None, out: Path | str | None = None
) -> Choice:
    """Choose the model of a finished run's list that does best on one client's data, and write it.

    The data is client `client`'s share of the run's data set, or of another one given as `dataset`; without a
    client, all of `dataset` is the client's own. The file holds the model's state dict, for a plain nn.Module.
    """
    directory = RunDirectory(run)
    final = directory.final_state().models
    experiment, inputs = directory.experiment(), directory.inputs()
    own = own_data(experiment, inputs.statistics, dataset, client)
    if max(int(own.validation[1].max()), int(own.test[1].max())) >= inputs.num_classes:
        raise LidflError(f"the data has classes that the models do not: they know 0 … {inputs.num_classes - 1}")
    network = Network(build_model(experiment.model, inputs.image_shape, inputs.num_classes, seed=0))
    losses = candidate_losses(network, final.parameters, *own.validation)
    accuracies = np.array([accuracy(network, row, own.test) for row in final.parameters])
    default = directory.path / ("picked.safetensors" if client is None else f"client-{client}.safetensors")
    return take(network, final, losses, accuracies, experiment, Path(out) if out else default)


def take(
    network: Network,
    final: ModelList,
    losses: NDArray[np.float64],
    accuracies: NDArray[np.float64],
    experiment: Experiment,
    path: Path,
) -> Choice:
    """Choose the model with the lowest loss, and write it."""
    position = int(losses.argmin())
    write_model(path, network, final, position, experiment)
    return Choice(final.ids, losses, accuracies, position, path)


def own_data(experiment: Experiment, statistics: Statistics, dataset: str | None, client: int | None) -> OwnData:
    """One client's images, standardised as those were that the models were trained on."""
    if client is None:
        if dataset is None:
            raise LidflError("whose data? give --client, or --dataset npz:path for your own")
        return _whole(load_dataset(dataset, rng_for(experiment.seed, "dataset")), statistics)
    check_client(experiment, client)
    # Only the data is needed: attacks and rules that the run names may not be at hand here.
    same = Experiment.unchecked(vars(experiment) | ({"dataset": dataset} if dataset else {}))
    data = load_data(same, statistics)
    return OwnData(data.validation.of(client), data.test.of(client))


def check_client(experiment: Experiment, client: int) -> None:
    """Refuse a client that a run does not have."""
    if not 0 <= client < experiment.num_clients:
        raise LidflError(f"there is no client {client}; the run has clients 0 … {experiment.num_clients - 1}")


def accuracy(network: Network, parameters: Parameters, test: tuple[Tensor, Tensor]) -> float:
    """The share of images that a model gets right."""
    images, labels = test
    return float(image_hits(logits(network, parameters, images), labels).double().mean())


def _whole(data: Dataset, statistics: Statistics) -> OwnData:
    images = statistics.apply(data.images)
    labels = torch.from_numpy(data.labels)
    return OwnData((images, labels), (images, labels))


def write_model(path: Path, network: Network, final: ModelList, position: int, experiment: Experiment) -> None:
    """Write one model as a state dict, with its name and where it comes from."""
    metadata = {
        "model": experiment.model,
        "dataset": experiment.dataset,
        "run": experiment.name,
        "id": str(final.ids[position]),
        "lidfl": version("lidfl"),
    }
    try:
        write_atomically(path, save(network.state_dict(final.parameters[position]), metadata))
    except OSError as error:
        raise LidflError(f"cannot write {path}: {error.strerror}; set --out") from None
