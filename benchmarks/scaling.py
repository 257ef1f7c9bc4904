"""How the time of a LiD-FL round grows with clients, model size and list size."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.problem import federated_data
from benchmarks.timing import fastest
from lidfl.runs.loop import drive
from lidfl.runs.server import Server, first_list
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import build_network
from lidfl.simulation.simulator import Simulator

CLIENTS = [35, 350, 3500]
HIDDEN = [16, 64, 256, 1024]
LIST_SIZES = [2, 8, 32, 128]
ROUNDS = 5
BLUE = "#0072B2"


@dataclass(frozen=True)
class Point:
    """One measurement."""

    axis: str
    value: int
    seconds: float
    """Of one round."""


def points() -> Iterator[Point]:
    """Every measurement; all else is the paper's FEMNIST-LR set-up at 60 %."""
    for clients in CLIENTS:
        yield Point("clients", clients, round_seconds(num_clients=clients))
    for hidden in HIDDEN:
        settings = dict(model=f"mlp:hidden={hidden}")
        yield Point("model parameters", parameters(**settings), round_seconds(**settings))
    for size in LIST_SIZES:
        yield Point("list size", size, round_seconds(list_size=size))


def simulator(**settings: Any) -> Simulator:
    """The clients of the paper's set-up, with some settings changed."""
    experiment = Experiment.of(dict(dataset="femnist") | settings)
    data = federated_data(experiment.num_clients)
    return Simulator(experiment, data, build_network(experiment, data))


def parameters(**settings: Any) -> int:
    """How many parameters the model has."""
    return simulator(**settings).network.dim


def round_seconds(**settings: Any) -> float:
    """Seconds of one round, from several in a row once the list has been judged."""
    clients = simulator(**settings)
    server = Server(clients.experiment)
    start = first_list(clients.experiment, clients.network.initial())
    clients.judges.losses(start, clients.cast.everyone)

    def play() -> None:
        models = start
        for round_index in range(ROUNDS):
            models = drive(server.round(models, round_index), clients.answer).models

    return fastest({"round": play}, turns=3)["round"] / ROUNDS


def draw(measured: list[Point], path: Path) -> None:
    """One panel an axis, both scales logarithmic, as SVG."""
    import altair as alt

    panels = []
    for axis in dict.fromkeys(point.axis for point in measured):
        rows = [{"value": p.value, "ms": p.seconds * 1000} for p in measured if p.axis == axis]
        ticks = alt.Axis(values=[row["value"] for row in rows], grid=False, labelOverlap=True)
        base = alt.Chart(alt.InlineData(rows)).encode(
            x=alt.X("value:Q", title=axis, scale=alt.Scale(type="log", nice=False, padding=12), axis=ticks),
            y=alt.Y("ms:Q", title="ms a round", scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=4)),
        )
        layers = base.mark_line(color=BLUE) + base.mark_point(color=BLUE, filled=True, opacity=1, size=60)
        panels.append(layers.properties(width=220, height=180))
    title = "How a LiD-FL round grows (FEMNIST, 60 % Byzantine; LR, and an MLP in the middle)"
    alt.hconcat(*panels).resolve_scale(y="shared").properties(title=title).save(str(path))
