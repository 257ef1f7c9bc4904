"""A round of ordinary federated learning by lidfl, the plain loop and other frameworks, in one run.

Every contestant starts from the same model, all clients train, and the updates are aggregated with equal weights.
Each is used through its public interface as its users would, with the data in memory, no evaluation and no
logging; set-up and one first round, in which gradient steps are counted, are not timed. A peer that is not
installed, or has no such rule, is left out with a sentence that says why.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from benchmarks import byzfl_alone, plain
from benchmarks.problem import PROBLEMS, Problem, experiment, federated_data
from benchmarks.timing import seconds
from lidfl.runs.loop import drive
from lidfl.runs.server import Server, first_list
from lidfl.settings.world import build_network
from lidfl.simulation.simulator import Simulator

if TYPE_CHECKING:
    from flwr.app import Context, Message, MetricRecord, RecordDict
    from flwr.serverapp import Grid

Rule: TypeAlias = Literal["fedavg", "median"]
RULES: tuple[Rule, ...] = ("fedavg", "median")


class LeftOut(Exception):
    """Why a peer cannot take part, in one sentence."""


@dataclass(frozen=True)
class Contestant:
    """A framework that is ready to play rounds."""

    play: Callable[[], None]
    """One round: all clients train, and the global model moves."""
    model: Callable[[], Tensor]
    """The global model as one vector."""


@dataclass(frozen=True)
class Result:
    """What was measured of one contestant."""

    name: str
    seconds: float
    """The fastest of the timed rounds."""
    steps: int | None
    """Gradient steps in the first round; lidfl has no torch optimizer that could be asked."""
    moved: float
    """How far the global model went in the first round, ‖w₁ − w₀‖."""


# lidfl and the plain loop


def lidfl_contestant(problem: Problem, rule: Rule) -> Contestant:
    """lidfl's simulator and server, as `lidfl run --method fedavg` or `cwm` uses them."""
    settings = experiment(problem.name, {"fedavg": "fedavg", "median": "cwm"}[rule])
    data = federated_data()
    simulator, server = Simulator(settings, data, build_network(settings, data)), Server(settings)
    models, done = first_list(settings, plain.flat(problem.module())), 0

    def play() -> None:
        nonlocal models, done
        models = drive(server.round(models, done), simulator.answer).models
        done += 1

    return Contestant(play, lambda: models.parameters[0])


def plain_contestant(problem: Problem, rule: Rule) -> Contestant:
    """The plain loop."""
    aggregate = {"fedavg": plain.mean, "median": plain.median}[rule]
    model = plain.flat(problem.module())

    def play() -> None:
        nonlocal model
        model = model + aggregate(plain.train_all(problem, model))

    return Contestant(play, lambda: model)


# ByzFL


def byzfl_contestant(problem: Problem, rule: Rule) -> Contestant:
    """ByzFL's Client and Server, in the order in which its documentation has them play FedAvg."""
    try:
        byzfl_alone.load()
        from byzfl import Client, Server
        from byzfl.fed_framework import models
    except (ImportError, RuntimeError) as error:  # torchvision fails with the latter where it does not fit torch
        raise LeftOut(f"ByzFL is left out: {error}.") from None
    models.benchmark_model = problem.module  # ByzFL looks models up by name, in this module
    settings = _byzfl_settings(problem)
    clients = [
        Client(settings | {"training_dataloader": plain.loader(problem, client)})
        for client in range(problem.num_clients)
    ]
    aggregator = {"name": {"fedavg": "Average", "median": "Median"}[rule], "parameters": {}}
    unused = plain.loader(problem, 0)
    server = Server(settings | {"aggregator_info": aggregator, "pre_agg_list": [], "test_loader": unused})

    def play() -> None:
        for client in clients:
            client.set_model_state(server.get_dict_parameters())
            client.compute_model_update(problem.steps)
        server.update_model_with_weights([client.get_flat_parameters() for client in clients])

    return Contestant(play, server.get_flat_parameters)


def _byzfl_settings(problem: Problem) -> dict[str, Any]:
    training = {
        "model_name": "benchmark_model",
        "device": "cpu",
        "optimizer_name": "SGD",
        "optimizer_params": {"momentum": problem.momentum},
        "learning_rate": problem.learning_rate,
        "weight_decay": 0.0,
        "milestones": [],
        "learning_rate_decay": 1.0,
    }
    # `momentum` here is that of its other algorithm, in which clients send single gradients.
    client = {"loss_name": "CrossEntropyLoss", "LabelFlipping": False, "nb_labels": 62, "momentum": 0.0}
    return training | client | {"store_per_client_metrics": False}


# pfl-research


class LossModule(nn.Module):
    """A module that knows its loss, which is what pfl trains."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch."""
        return F.cross_entropy(self.module(images), labels)

    @torch.no_grad()
    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, Any]:
        """What pfl reports in its very first round."""
        from pfl.metrics import Weighted

        return {"loss": Weighted(self.loss(images, labels).item() * len(images), len(images))}


def pfl_contestant(problem: Problem, rule: Rule) -> Contestant:
    """pfl's FederatedAveraging on its SimulatedBackend, in one process."""
    if rule != "fedavg":
        raise LeftOut("pfl is left out of the median: it has no robust rule, its aggregators only sum.")
    try:
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.algorithm.base import NNAlgorithmParams
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.hyperparam import NNTrainHyperParams
        from pfl.model.pytorch import PyTorchModel
    except ImportError as error:
        raise LeftOut(f"pfl is left out: {error}.") from None
    module = LossModule(problem.module())
    sgd = torch.optim.SGD
    model = PyTorchModel(module, partial(sgd, momentum=problem.momentum), sgd(module.parameters(), lr=1.0))
    data = _pfl_data(problem)
    backend, algorithm = SimulatedBackend(training_data=data, val_data=data), FederatedAveraging()
    training = NNTrainHyperParams(
        local_batch_size=problem.batch_size,
        local_num_epochs=None,
        local_num_steps=problem.steps,
        local_learning_rate=problem.learning_rate,
    )
    done = 0

    def play() -> None:
        nonlocal done
        done += 1  # a run goes on from the last one's round, to this many
        # Round 0 evaluates whatever the frequency; it is not timed.
        rounds = NNAlgorithmParams(
            central_num_iterations=done,
            evaluation_frequency=1_000_000,
            train_cohort_size=problem.num_clients,
            val_cohort_size=None,
        )
        algorithm.run(rounds, backend, model, training, send_metrics_to_platform=False)

    return Contestant(play, lambda: plain.flat(module))


def _pfl_data(problem: Problem) -> Any:
    """Each client's images as pfl's in-memory data set, repeated to fill all steps.

    pfl ends local training where the data ends. It takes batches in order, as slices that it keeps.
    """
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler

    def in_memory(client: int) -> Any:
        images, labels = problem.train_images[client], problem.train_labels[client]
        rows = torch.arange(problem.steps * problem.batch_size) % len(images)
        return PyTorchTensorDataset((images[rows], labels[rows]))

    clients = list(range(problem.num_clients))
    sets = [in_memory(client) for client in clients]
    return FederatedDataset(sets.__getitem__, get_user_sampler("minimize_reuse", clients))


# Flower


def flower_result(problem: Problem, rule: Rule, repeats: int, threads: int = 2) -> Result:
    """Flower's simulation: a round needs its running Ray workers, so that it is timed inside one simulation.

    One Ray worker a thread, each with one torch thread. The workers build the problem by its name, once, as apps
    do; sent along with the client app it would be copied for every message.
    """
    _quiet_flower()
    try:
        import ray  # noqa: F401  (flwr exits the process where it is missing)
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation
    except ImportError as error:
        raise LeftOut(f"Flower is left out: {error}.") from None
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    results: list[Result] = []

    def serve(grid: "Grid", _context: "Context") -> None:
        results.append(_flower_rounds(problem, rule, repeats, grid))

    client_app, server_app = ClientApp(), ServerApp()
    client_app.train()(flower_train)
    server_app.main()(serve)
    cores: Any = {"init_args": {"num_cpus": threads}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, problem.num_clients, backend_config=cores)
    return results[0]


def _quiet_flower() -> None:
    """Neither Flower nor Ray calls home; both read this when they are imported."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # or Ray announces a change that is about GPUs


def _flower_rounds(problem: Problem, rule: Rule, repeats: int, grid: "Grid") -> Result:
    """The server's side: a first round, then the timed ones, each from the model of the last."""
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.serverapp.strategy import FedAvg, FedMedian

    kind = {"fedavg": FedAvg, "median": FedMedian}[rule]
    everyone = problem.num_clients  # else the first round starts with those that have already joined
    strategy = kind(
        fraction_evaluate=0.0,
        min_train_nodes=everyone,
        min_available_nodes=everyone,
        train_metrics_aggr_fn=_flower_sum,
    )
    arrays, config = ArrayRecord(problem.module().state_dict()), ConfigRecord({"problem": problem.name})
    seconds, steps, moved = [], [], []
    for _ in range(1 + repeats):
        began = perf_counter()
        result = strategy.start(grid, arrays, num_rounds=1, train_config=config)
        seconds.append(perf_counter() - began)
        moved.append(_distance(arrays.to_torch_state_dict(), result.arrays.to_torch_state_dict()))
        steps.append(cast(int, result.train_metrics_clientapp[1]["steps"]))
        arrays = result.arrays
        check_steps(problem, "Flower", steps[-1])
    return Result("Flower", min(seconds[1:]), steps[0], moved[0])


def _distance(before: dict[str, Tensor], after: dict[str, Tensor]) -> float:
    return float(sum((after[name] - before[name]).square().sum() for name in before) ** 0.5)


def _flower_sum(replies: "Sequence[RecordDict]", _weight: str) -> "MetricRecord":
    from flwr.app import MetricRecord

    steps = [cast(int, reply.metric_records["metrics"]["steps"]) for reply in replies]
    return MetricRecord({"steps": sum(steps)})


def flower_train(message: "Message", context: "Context") -> "Message":
    """A Flower client's training, as its quickstart has it: load the model, train it, send it back."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    torch.set_num_threads(1)
    problem, module = _flower_problem(str(message.content.config_records["config"]["problem"]))
    module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    with counted_steps() as steps:
        plain.train(problem, int(context.node_config["partition-id"]), module)
    metrics = MetricRecord({"num-examples": 1, "steps": len(steps)})  # all clients weigh the same
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@lru_cache(maxsize=1)
def _flower_problem(name: str) -> tuple[Problem, nn.Module]:
    """A worker's problem and module, built once."""
    problem = PROBLEMS[name]()
    return problem, problem.module()


# Measuring


@contextmanager
def counted_steps() -> Iterator[list[None]]:
    """A list that grows by one with every step that any torch optimizer takes."""
    steps: list[None] = []
    handle = register_optimizer_step_post_hook(lambda *_: steps.append(None))
    try:
        yield steps
    finally:
        handle.remove()


CONTESTANTS: dict[str, Callable[[Problem, Rule], Contestant]] = {
    "lidfl": lidfl_contestant,
    "plain loop": plain_contestant,
    "ByzFL": byzfl_contestant,
    "pfl": pfl_contestant,
}
"""Those that play in this process, in turns."""


def compare(problem: Problem, rule: Rule, repeats: int = 5, threads: int = 2) -> tuple[list[Result], list[str]]:
    """Results of all that can take part, and why the others cannot.

    Rounds in this process are interleaved, so that a busy machine slows all of them alike. Flower comes last and
    on its own: its workers would take the others' cores.
    """
    torch.set_num_threads(threads)
    ready, sentences = set_up(problem, rule)
    first = {name: first_round(problem, name, contestant) for name, contestant in ready.items()}
    times: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(repeats):
        for name, contestant in ready.items():
            times[name].append(seconds(contestant.play))
    results = [Result(name, min(times[name]), *first[name]) for name in ready]
    try:
        results.append(flower_result(problem, rule, repeats, threads))
    except LeftOut as reason:
        sentences.append(str(reason))
    return results, sentences


def set_up(problem: Problem, rule: Rule) -> tuple[dict[str, Contestant], list[str]]:
    """The contestants that play in this process, and why the others do not."""
    ready: dict[str, Contestant] = {}
    sentences: list[str] = []
    for name, build in CONTESTANTS.items():
        try:
            ready[name] = build(problem, rule)
        except LeftOut as reason:
            sentences.append(str(reason))
    return ready, sentences


def first_round(problem: Problem, name: str, contestant: Contestant) -> tuple[int | None, float]:
    """Play a round untimed; returns its gradient steps and how far the model went."""
    before = contestant.model().clone()
    with counted_steps() as steps:
        contestant.play()
    if steps:
        check_steps(problem, name, len(steps))
    return len(steps) or None, (contestant.model() - before).norm().item()


def check_steps(problem: Problem, name: str, steps: int) -> None:
    """Refuse a contestant that does not do the work; a server's optimizer may take one step more."""
    expected = problem.num_clients * problem.steps
    if not expected <= steps <= expected + 1:
        raise RuntimeError(f"{name} took {steps} gradient steps in a round; {expected} were asked for")
