"""What the settings stand for: the data as it is dealt, the model as it is initialised, and who is Byzantine.

All of it follows from the experiment alone, the same in every process that asks.
"""

import logging
from functools import partial

import torch

from lidfl.data import load_dataset
from lidfl.data.federated import federate, federate_drawn
from lidfl.data.partitions import SharedPool, deal
from lidfl.data.shards import FederatedData, Statistics
from lidfl.data.splits import parse_split
from lidfl.errors import LidflError
from lidfl.learning.balance import balance_of
from lidfl.learning.client import Measure
from lidfl.learning.judges import judge
from lidfl.learning.models import build_model
from lidfl.learning.parameters import Network
from lidfl.plugins import in_a_line
from lidfl.protocol import Canonical
from lidfl.seeds import rng_for, seed_for
from lidfl.settings.answers import checked_measure
from lidfl.settings.experiment import Experiment
from lidfl.types import Client, Parameters

log = logging.getLogger(__name__)


def load_data(experiment: Experiment, statistics: Statistics | None = None) -> FederatedData:
    """The experiment's data, dealt to its clients and split."""
    check_device_is_there(experiment.device)
    seed = experiment.seed
    data = load_dataset(experiment.dataset, rng_for(seed, "dataset"))
    rng = rng_for(seed, "partition")
    clients = deal(experiment.partition, data.labels, data.writers, experiment.num_clients, rng, data.clients)
    ratio = parse_split(experiment.split)
    if isinstance(clients, SharedPool):
        return federate_drawn(
            data, experiment.num_clients, clients.size, ratio, seed, experiment.device, statistics
        )
    return federate(data, clients, ratio, rng_for(seed, "split"), experiment.device, statistics)


def check_device_is_there(device: str) -> None:
    """Refuse a device that this machine, or this build of torch, does not have."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LidflError(f"device '{device}' cannot be used here ({reason}); set device=\"cpu\"") from None


def build_network(experiment: Experiment, data: FederatedData) -> Network:
    """The experiment's model, initialised from its seed, checked to fit the data."""
    seed = seed_for(experiment.seed, "model")
    module = build_model(experiment.model, data.image_shape, data.num_classes, seed).to(experiment.device)
    network = Network(module)
    sample = data.train.images[:2]
    check_logits(_tried(network, sample, experiment.model), experiment, len(sample), data.num_classes)
    if looks_up(module):
        for split in (data.train, data.validation, data.test):  # any image may hold the index that is too large
            _tried(network, split.images, experiment.model)
    check_training(network, experiment, data)
    return network


def check_logits(logits: object, experiment: Experiment, images: int, num_classes: int, when: str = "") -> None:
    """Refuse a model that gives anything but a number for each class."""
    if not isinstance(logits, torch.Tensor):
        raise LidflError(
            f"model '{experiment.model}' gives a {type(logits).__name__}{when}; it must give its logits alone, "
            "a tensor"
        )
    if logits.shape != (images, num_classes):
        raise LidflError(
            f"model '{experiment.model}' gives outputs of shape {tuple(logits.shape[1:])}{when}; "
            f"{experiment.dataset} has {num_classes} classes, so it must be ({num_classes},)"
        )
    if not logits.is_floating_point():
        kind = str(logits.dtype).removeprefix("torch.")
        raise LidflError(f"model '{experiment.model}' gives logits of {kind}{when}; they must be floats")


def check_training(network: Network, experiment: Experiment, data: FederatedData) -> None:
    """Refuse a model that cannot be trained, by one gradient from as few images as a client has in a batch.

    Like local training it leaves the module's numbers and the global random state as they are.
    """
    few = min(2, experiment.batch_size, int(data.train.sizes.min()))
    images, labels = data.train.images[:few], data.train.labels[:few]
    with torch.random.fork_rng(devices=[]):
        logits = _tried(network, images, experiment.model, training=True)
        check_logits(logits, experiment, few, data.num_classes, when=" in training")
        assert isinstance(logits, torch.Tensor)
        if not logits.requires_grad:
            raise LidflError(
                f"model '{experiment.model}' gives logits without a gradient; compute them without detach() and "
                "torch.no_grad()"
            )
        try:
            torch.autograd.backward(torch.nn.functional.cross_entropy(logits, labels))
        except Exception as error:  # a user's own code may raise anything
            raise LidflError(f"model '{experiment.model}' cannot be trained: {in_a_line(error)}") from error
    network.module.eval()


def _tried(network: Network, images: torch.Tensor, name: str, *, training: bool = False) -> object:
    """What a model makes of images; where it fails, why."""
    tensors = network.unflatten(network.initial())
    if training:
        tensors = {name: part.clone() for name, part in (tensors | network.counters).items()}
        tensors |= {name: tensors[name].requires_grad_() for name in network.trained}
    try:
        return network.apply(tensors, images, training=training)
    except Exception as error:  # a user's own code may raise anything
        shape, when = tuple(images.shape[1:]), f", {len(images)} at a time in training" if training else ""
        raise LidflError(f"model '{name}' does not take images of {shape}{when}: {in_a_line(error)}") from error


def looks_up(module: torch.nn.Module) -> bool:
    """Whether a model looks numbers up in a table, which may be too short for them."""
    return any(isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) for part in module.modules())


def measure_of(experiment: Experiment, num_classes: int) -> Measure:
    """What clients judge an image by."""
    rule = judge.resolve(experiment.judge)
    return checked_measure(rule.name, partial(rule, num_classes=num_classes))


def canonical_form(experiment: Experiment, network: Network, first: Parameters) -> Canonical | None:
    """The form that the server brings models into, if it is to and knows one for such a network."""
    if not experiment.balance:
        return None
    balance = balance_of(network, first)
    if balance is None:
        log.info("balance: model '%s' is not a plain chain of layers, and is taken as it is", experiment.model)
    return balance


def draw_byzantine(experiment: Experiment) -> frozenset[Client]:
    """Who is Byzantine: num_byzantine clients at random."""
    rng = rng_for(experiment.seed, "byzantine")
    return frozenset(rng.choice(experiment.num_clients, experiment.num_byzantine, replace=False).tolist())
