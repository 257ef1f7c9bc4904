"""What the settings stand for: the data as it is dealt, the model as it is initialised, and who is Byzantine.

All of it follows from the experiment alone, the same in every process that asks.
"""

from lidfl import datasets, models
from lidfl.config import Experiment
from lidfl.datasets.federated import FederatedData, Statistics, federate, federate_drawn, parse_split
from lidfl.errors import LidflError
from lidfl.parameters import Network
from lidfl.partitions import Drawn, deal
from lidfl.seeds import rng_for, seed_for
from lidfl.types import Client


def load_data(experiment: Experiment, statistics: Statistics | None = None) -> FederatedData:
    """The experiment's data, dealt to its clients and split."""
    seed = experiment.seed
    data = datasets.load(experiment.dataset, rng_for(seed, "dataset"))
    rng = rng_for(seed, "partition")
    clients = deal(experiment.partition, data.labels, data.writers, experiment.num_clients, rng)
    ratio = parse_split(experiment.split)
    if isinstance(clients, Drawn):
        sizes = experiment.num_clients, clients.size
        return federate_drawn(data, *sizes, ratio, seed, experiment.device, statistics)
    return federate(data, clients, ratio, rng_for(seed, "split"), experiment.device, statistics)


def build_network(experiment: Experiment, data: FederatedData) -> Network:
    """The experiment's model, initialised from its seed, checked to fit the data."""
    seed = seed_for(experiment.seed, "model")
    module = models.build(experiment.model, data.image_shape, data.num_classes, seed).to(experiment.device)
    network = Network(module)
    sample = data.train.images[:2]
    try:
        logits = network.apply(network.unflatten(network.initial()), sample, training=False)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise LidflError(
            f"model '{experiment.model}' does not take images of {data.image_shape}: {reason}"
        ) from None
    if logits.shape != (len(sample), data.num_classes):
        raise LidflError(
            f"model '{experiment.model}' gives outputs of shape {tuple(logits.shape[1:])}; "
            f"{experiment.dataset} has {data.num_classes} classes, so it must be ({data.num_classes},)"
        )
    return network


def draw_byzantine(experiment: Experiment) -> frozenset[Client]:
    """Who is Byzantine: num_byzantine clients at random."""
    rng = rng_for(experiment.seed, "byzantine")
    return frozenset(rng.choice(experiment.num_clients, experiment.num_byzantine, replace=False).tolist())
