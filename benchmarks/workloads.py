"""The work of a simulation, done by the plain loop and by lidfl, on the same data with the same draws."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks import plain
from benchmarks.problem import Problem, cnn_problem, federated_data, lr_problem
from benchmarks.timing import Work, fastest
from lidfl.learning.native import is_available
from lidfl.methods import aggregators
from lidfl.protocol import ModelList, Train
from lidfl.runs.loop import drive
from lidfl.runs.server import Server, first_list
from lidfl.seeds import rng_for
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import build_network
from lidfl.simulation.simulator import Simulator

LR_FLOPS = 2 * 784 * 62
"""Multiply-adds ×2 of one image through the LR model."""


@dataclass(frozen=True)
class Workload:
    """One line of the table: the same work twice."""

    name: str
    plain: Work
    ours: Work
    target: float
    """How many times faster ours is meant to be."""
    turns: int
    flops: float | None = None
    """Floating-point operations in matrix products, where they bound the work."""


@dataclass(frozen=True)
class Timing:
    """What was measured of a workload."""

    name: str
    plain: float
    ours: float
    target: float
    flops: float | None

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.plain / self.ours


def measure(workload: Workload) -> Timing:
    """Time both sides of a workload in turns."""
    best = fastest({"plain": workload.plain, "ours": workload.ours}, workload.turns)
    return Timing(workload.name, best["plain"], best["ours"], workload.target, workload.flops)


def simulator(model: str, attack: str = "sign_flip") -> Simulator:
    """lidfl's clients for a problem, 60 % of them Byzantine."""
    settings = Experiment(dataset="femnist", model=model, attack=attack)
    data = federated_data()
    return Simulator(settings, data, build_network(settings, data))


def training(problem: Problem, clients: int, target: float, turns: int) -> Workload:
    """Local trainings of the first few clients from one model."""
    ours, start = simulator(problem.name, "none"), plain.flat(problem.module())
    request = Train(0, ModelList.initial(start, 1), dict.fromkeys(range(clients), (0,)))
    images = clients * problem.steps * problem.batch_size
    return Workload(
        f"{problem.name.upper()}, training of {clients} client{'s' if clients > 1 else ''}",
        lambda: [plain.train_client(problem, client, start) for client in range(clients)],
        lambda: ours.answer(request),
        target,
        turns,
        2 * LR_FLOPS * images if problem.name == "lr" else None,
    )


def evaluation(problem: Problem, target: float, turns: int) -> Workload:
    """One model judged by every client on its validation images."""
    ours, vector = simulator(problem.name), plain.flat(problem.module())
    images = sum(map(len, problem.validation_images))
    return Workload(
        f"{problem.name.upper()}, evaluation of a model by {problem.num_clients} clients",
        lambda: plain.evaluate(problem, vector),
        lambda: ours.judges.loss(vector, ours.cast.everyone),
        target,
        turns,
        LR_FLOPS * images if problem.name == "lr" else None,
    )


def whole_rounds(problem: Problem, attack: plain.Attack, target: float, rounds: int, turns: int) -> Workload:
    """Whole rounds of LiD-FL: training, the new model judged by all clients, votes.

    Both sides go on from turn to turn with a list of their own, and draw the same clients in the same rounds.
    """
    clients = simulator(problem.name, attack)
    server, start = Server(clients.experiment), plain.flat(problem.module())
    ours, ours_done = first_list(clients.experiment, start), 0
    theirs, theirs_done = [plain.Candidate(start) for _ in range(clients.experiment.list_size)], 0

    def play_ours() -> None:
        nonlocal ours, ours_done
        for _ in range(rounds):
            ours = drive(server.round(ours, ours_done), clients.answer).models
            ours_done += 1

    def play_plain() -> None:
        nonlocal theirs, theirs_done
        for _ in range(rounds):
            rng = rng_for(clients.experiment.seed, "server", theirs_done)
            theirs = plain.lid_round(problem, theirs, clients.cast.byzantine, attack, rng)
            theirs_done += 1

    many = "a round" if rounds == 1 else f"{rounds} rounds"
    return Workload(f"{problem.name.upper()}, {many} of LiD-FL, {attack}", play_plain, play_ours, target, turns)


RANKED_STEPS = 5
"""Fewer than usual: the torch loop takes long, and judging as long with any number."""


def ranked_round() -> Workload:
    """A round of lidfl-ranked with the CNN: everybody trains, jurors choose, all vote; beside torch's loop."""
    sides = {}
    data = federated_data()
    for engine in ("loop", "auto"):
        settings = Experiment(
            dataset="femnist", model="cnn", method="lidfl-ranked", local_steps=RANKED_STEPS, engine=engine
        )
        network = build_network(settings, data)
        clients = Simulator(settings, data, network)
        sides[engine] = _rounds_of(clients, first_list(settings, network.initial()))
    return Workload("CNN, a round of lidfl-ranked, beside torch's loop", sides["loop"], sides["auto"], 2.5, 2)


def _rounds_of(clients: Simulator, models: ModelList) -> Work:
    """Each call plays one more round."""
    server, done = Server(clients.experiment), 0

    def play() -> None:
        nonlocal models, done
        models = drive(server.round(models, done), clients.answer).models
        done += 1

    return play


def rules(dim: int, turns: int) -> list[Workload]:
    """Aggregation of 35 updates."""
    updates = torch.from_numpy(np.random.default_rng(0).standard_normal((35, dim), dtype=np.float32))
    contests: dict[str, tuple[Callable[[Tensor], object], Callable[[Tensor], object], float]] = {
        "median": (plain.median, aggregators.cwm, 3),
        "Krum": (lambda u: plain.krum(u, 21), lambda u: aggregators.krum(u, num_honest=14), 5),
        "RKNN": (
            lambda u: plain.rknn(u, 14, np.random.default_rng(0)),
            lambda u: aggregators.rknn(u, num_honest=14, rng=np.random.default_rng(0)),
            5,
        ),
        "MEB": (lambda u: plain.meb(u, 14), lambda u: aggregators.meb(u, num_honest=14), 5),
    }
    return [
        Workload(f"{name} of 35 × {dim:,}", _on(slow, updates), _on(fast, updates), target, turns)
        for name, (slow, fast, target) in contests.items()
    ]


def _on(rule: Callable[[Tensor], object], updates: Tensor) -> Work:
    return lambda: rule(updates)


def workloads(turns: int = 7) -> list[Workload]:
    """Every line of the table; CNN work takes fewer turns, since it is long."""
    lr, cnn = lr_problem(), cnn_problem()
    few, compiled = max(3, turns - 2), is_available()  # without a compiler there is torch's loop
    return [
        training(lr, 35, 8, turns),
        training(lr, 1, 6, 10 * turns),
        evaluation(lr, 6, 5 * turns),
        whole_rounds(lr, "sign_flip", 6, 10, turns),
        whole_rounds(lr, "lie", 7, 10, few),
        training(cnn, 1, 4 if compiled else 1.5, turns),
        training(cnn, 4, 4 if compiled else 1.5, few),
        evaluation(cnn, 5 if compiled else 2.3, few),
        whole_rounds(cnn, "sign_flip", 4.5 if compiled else 2.2, 1, few),
        *rules(151_358, turns),
    ]
