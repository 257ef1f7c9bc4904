"""Whichever engine computes a set of trainings, the result is that of each client training alone."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lidfl import Experiment, LidflError, RunDirectory, run
from lidfl.learning.client import (
    LocalTraining,
    Pull,
    draw_batches,
    flushing_denormals,
    image_hits,
    image_losses,
    logits,
)
from lidfl.learning.engines import ENGINES, Jobs, candidate_engines, fastest_engine, logits_for
from lidfl.learning.models import build_model
from lidfl.learning.native.build import library
from lidfl.learning.parameters import Network
from lidfl.simulation.simulator import Simulator

TRAINING = LocalTraining(steps=6, batch_size=8, learning_rate=0.05, momentum=0.9)
IMAGES = torch.from_numpy(np.random.default_rng(0).normal(size=(90, 1, 8, 8))).float()
LABELS = torch.from_numpy(np.random.default_rng(1).integers(0, 4, 90))


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(108, 4))


class FunctionalDropout(nn.Module):
    """Draws random numbers without a layer that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layer(F.dropout(images.flatten(1), 0.5, self.training))
        return logits


MODULES: dict[str, Callable[[], nn.Module]] = {
    "lr": lambda: build_model("lr", (1, 8, 8), 4, seed=0),
    "mlp": lambda: build_model("mlp:hidden=7", (1, 8, 8), 4, seed=0),
    "convolution": convolution,
}


def some_jobs(network: Network, count: int = 5) -> Jobs:
    """Trainings from different starts on different images."""
    rng = np.random.default_rng(3)
    rows = [draw_batches(18, TRAINING, rng) + 18 * job for job in range(count)]
    noise = torch.from_numpy(rng.normal(size=(count, network.dim), scale=0.01)).float()
    return Jobs(network.initial() + noise, torch.from_numpy(np.stack(rows)), tuple(range(count)))


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("engine", ["linear", "vmap"])
def test_every_engine_gives_what_the_loop_gives(module: str, engine: str) -> None:
    network = Network(MODULES[module]())
    if engine == "linear" and module != "lr":
        assert "linear" not in candidate_engines(network, IMAGES)
        return
    jobs = some_jobs(network)
    expected = ENGINES["loop"](network, TRAINING, IMAGES, LABELS)(jobs)
    updates = ENGINES[engine](network, TRAINING, IMAGES, LABELS)(jobs)
    torch.testing.assert_close(updates, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "engine"), [("lr", "linear"), ("lr", "sparse"), ("mlp", "vmap"), ("mlp", "loop")]
)
@pytest.mark.parametrize("count", [1, 5])
def test_every_engine_draws_training_to_a_second_model(module: str, engine: str, count: int) -> None:
    """By hand: v ← μv + ∇F(w) + λ(w − anchor), w ← w − ℓv."""
    network = Network(MODULES[module]())
    images = torch.where(IMAGES > 1, IMAGES, 0)  # with little ink, as one of them wants
    anchor = torch.linspace(-1, 1, network.dim)
    jobs = replace(some_jobs(network, count), pull=Pull(anchor, 0.7))
    expected = []
    for start, rows in zip(jobs.starts, jobs.rows, strict=True):
        model, velocity = start.clone(), torch.zeros(network.dim)
        for batch in rows:
            weights = model.clone().requires_grad_()
            logits = network.apply(network.unflatten(weights), images[batch], training=True)
            (gradient,) = torch.autograd.grad(F.cross_entropy(logits, LABELS[batch]), weights)
            velocity = TRAINING.momentum * velocity + gradient + 0.7 * (model - anchor)
            model = model - TRAINING.learning_rate * velocity
        expected.append(model - start)
    updates = ENGINES[engine](network, TRAINING, images, LABELS)(jobs)
    torch.testing.assert_close(updates, torch.stack(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("engine", ["linear", "vmap", "loop"])
def test_an_engine_leaves_the_starting_models_alone(engine: str) -> None:
    network = Network(MODULES["lr"]())
    jobs = some_jobs(network)
    before = jobs.starts.clone()
    ENGINES[engine](network, TRAINING, IMAGES, LABELS)(jobs)
    assert torch.equal(jobs.starts, before)


def test_batch_normalisation_takes_the_loop_and_its_statistics_are_trained() -> None:
    network = Network(normalised())
    assert candidate_engines(network, IMAGES) == ["loop"]
    update = ENGINES["loop"](network, TRAINING, IMAGES, LABELS)(some_jobs(network))
    statistics = network.unflatten(update[0])
    assert statistics["1.running_mean"].abs().max() > 0


def build(module: nn.Module) -> tuple[Network, Callable[[str], Callable[[Jobs], Tensor]]]:
    network = Network(module)
    return network, lambda name: ENGINES[name](network, TRAINING, IMAGES, LABELS)


def test_the_trial_says_what_it_chose(caplog: pytest.LogCaptureFixture) -> None:
    network, builder = build(MODULES["mlp"]())
    with caplog.at_level(logging.INFO):
        chosen = fastest_engine(builder, ["loop", "vmap"], some_jobs(network))
    assert f"engine {chosen} is the fastest for this model: loop" in caplog.text
    assert " ms" in caplog.text


def test_a_model_that_draws_random_numbers_falls_back_to_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    network, builder = build(FunctionalDropout())
    with caplog.at_level(logging.INFO):
        assert fastest_engine(builder, candidate_engines(network, IMAGES), some_jobs(network)) == "loop"
    assert "engine vmap cannot run this model" in caplog.text
    first, second = (builder("loop")(some_jobs(network)) for _ in range(2))
    assert torch.equal(first, second), "dropout is repeatable"


def test_an_engine_that_disagrees_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    network, builder = build(MODULES["mlp"]())

    def wrong(name: str) -> Callable[[Jobs], Tensor]:
        engine = builder(name)
        return engine if name == "loop" else lambda jobs: engine(jobs) * 1.01

    with caplog.at_level(logging.INFO):
        assert fastest_engine(wrong, ["loop", "vmap"], some_jobs(network)) == "loop"
    assert "gives other results" in caplog.text


def test_the_chosen_engine_is_kept_with_the_run_and_used_again(tmp_path: Path) -> None:
    settings = Experiment(model="tests.learning.test_engines:small_net", rounds=4, out=str(tmp_path / "run"))
    run(settings)
    chosen = RunDirectory(tmp_path / "run").experiment().engine
    assert chosen in ("loop", "vmap")
    other = {"loop": "vmap", "vmap": "loop"}[chosen]
    with pytest.raises(LidflError, match=f"engine = '{chosen}', not '{other}'"):
        run(settings.with_settings(engine=other), resume=True)
    run(settings.with_settings(rounds=6), resume=True)
    assert RunDirectory(tmp_path / "run").experiment().engine == chosen


def small_net(image_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """A user's own model."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(int(np.prod(image_shape)), 6), nn.Tanh(), nn.Linear(6, num_classes)
    )


@pytest.mark.parametrize("module", MODULES)
def test_a_model_is_judged_the_same_however_its_logits_are_computed(module: str) -> None:
    network = Network(MODULES[module]())
    vector = some_jobs(network).starts[0]
    fast, plain = logits_for(network, "auto", IMAGES)(vector, IMAGES), logits(network, vector, IMAGES)
    torch.testing.assert_close(image_losses(fast, LABELS), image_losses(plain, LABELS))
    assert torch.equal(image_hits(fast, LABELS), image_hits(plain, LABELS))


@pytest.fixture
def without_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine whose compiler fails, with nothing compiled yet."""
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("model", ["cnn", "mlp"])
@pytest.mark.parametrize("engine", ["native", "auto", "loop"])
def test_without_a_compiler_one_line_says_what_is_so(
    model: str, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    instead = {"cnn": "loop", "mlp": "vmap"}[model]
    experiment = Experiment(model=model, engine=engine, num_clients=4)
    with caplog.at_level("INFO"):
        if engine == "native":
            with pytest.raises(LidflError, match=rf'cannot be built: .*; set engine="{instead}"$'):
                Simulator.of(experiment)
        else:
            assert Simulator.of(experiment).engine_name == (instead if engine == "auto" else engine)
    assert caplog.text.count("C++") == caplog.text.count(f"engine {instead} is taken") == (engine == "auto")


def test_an_engine_that_cannot_train_the_model_is_refused() -> None:
    with pytest.raises(LidflError, match="engine 'linear' cannot train model 'mlp' here; choose native"):
        Simulator.of(Experiment(model="mlp", engine="linear"))


@pytest.fixture
def flushed() -> Iterator[None]:
    with flushing_denormals():
        yield


def best_seconds(*contestants: Callable[[], object]) -> list[float]:
    """The shortest of several timings of each; they take turns, so that a busy machine slows all of them."""
    best = [float("inf")] * len(contestants)
    for _ in range(9):
        for place, work in enumerate(contestants):
            began = time.perf_counter()
            work()
            best[place] = min(best[place], time.perf_counter() - began)
    return best


@pytest.mark.usefixtures("flushed")
@pytest.mark.parametrize("module", ["lr", "mlp", "convolution"])
@pytest.mark.parametrize("value", [1e-40, 1e30, float("inf"), float("nan")])
def test_collapsed_and_diverged_models_do_not_slow_a_round(module: str, value: float) -> None:
    """Denormal numbers made rounds up to 40 times slower before they were flushed to zero.

    What the native engine hands back, torch does at its own pace: that is the measure.
    """
    network = Network(MODULES[module]())
    name = candidate_engines(network, IMAGES)[0]
    engine, measure = (
        ENGINES[one](network, TRAINING, IMAGES, LABELS) for one in (name, "loop" if name == "native" else name)
    )
    jobs = some_jobs(network)
    broken = Jobs(torch.full_like(jobs.starts, value), jobs.rows, jobs.dropout_seeds)
    many = IMAGES.repeat(40, 1, 1, 1)
    judged, measured = (logits_for(network, one, IMAGES) for one in (name, "auto"))
    contests = [
        (lambda: measure(jobs), lambda: engine(broken)),
        (lambda: measured(jobs.starts[0], many), lambda: judged(broken.starts[0], many)),
    ]
    for usual, with_broken in contests:
        healthy, slow = best_seconds(usual, with_broken)
        assert slow < 3 * healthy + 0.002


def denormals_count() -> bool:
    return (torch.tensor(1e-40) * 1).item() > 0


def test_a_run_flushes_denormals_and_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    seen = []
    assert denormals_count()
    run(Experiment(rounds=1, out=str(tmp_path / "run")), observe=lambda _: seen.append(denormals_count()))
    assert seen == [False]
    assert denormals_count()
