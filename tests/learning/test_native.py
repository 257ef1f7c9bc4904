"""The C++ engine gives what torch gives, whatever the network, the numbers and the threads."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lidfl.data import load_dataset
from lidfl.learning.client import LocalTraining, flushing_denormals, local_update, logits
from lidfl.learning.engines import Jobs
from lidfl.learning.models import cnn
from lidfl.learning.native import NativeUnavailable, build, describe, engine, is_available, native, native_logits
from lidfl.learning.parameters import Network
from lidfl.seeds import rng_for
from tests.real_data import needs_femnist

needs_compiler = pytest.mark.skipif(not is_available(), reason="no C++ compiler")
FEMNIST, CIFAR = (1, 28, 28), (3, 32, 32)
UNIT = 2.0**20
"""A learning rate next to which the start is nothing: one step's update is the gradient."""


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make()
    assert isinstance(module, nn.Sequential)
    return module


def sequential(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*layers)


def noise(shape: tuple[int, ...], seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def drawn_labels(count: int, classes: int) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(2))


def drawn_rows(count: int, jobs: int, steps: int, batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    rows = [torch.randperm(count, generator=generator)[:batch] for _ in range(jobs * steps)]
    return torch.stack(rows).view(jobs, steps, batch)


def jobs_of(network: Network, rows: Tensor, scale: float = 1.0) -> Jobs:
    starts = (network.initial() * scale).repeat(len(rows), 1)
    return Jobs(starts, rows, tuple(range(len(rows))))


def exact_gradient(network: Network, images: Tensor, labels: Tensor) -> Tensor:
    """In float64."""
    return torch_gradient(network, images.double(), labels)


def torch_gradient(network: Network, images: Tensor, labels: Tensor) -> Tensor:
    """As precise as the images are."""
    parts = network.unflatten(network.initial().to(images.dtype, copy=True))
    weights = {name: part.requires_grad_() for name, part in parts.items()}
    loss = F.cross_entropy(network.apply(weights, images, training=True), labels)
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, list(weights.values()))])


def native_gradient(network: Network, images: Tensor, labels: Tensor) -> Tensor:
    rows = torch.arange(len(images)).view(1, 1, -1)
    engine = native(network, LocalTraining(1, len(images), UNIT, 0.0), images, labels)
    return engine(jobs_of(network, rows))[0].double() / -UNIT


def distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


def pooled(channels: int, outputs: int, kernel: int, padding: int = 0) -> list[nn.Module]:
    return [nn.Conv2d(channels, outputs, kernel, padding=padding), nn.MaxPool2d(2), nn.ReLU()]


def classified(features: int, classes: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(features, classes)]


def rectified(channels: int, outputs: int, kernel: int, padding: int = 0) -> list[nn.Module]:
    return [nn.Conv2d(channels, outputs, kernel, padding=padding), nn.ReLU()]


def deep_tail() -> list[nn.Module]:
    return [*classified(800, 500), nn.ReLU(), nn.Linear(500, 33), nn.Linear(33, 2)]


def unrectified() -> list[nn.Module]:
    return [nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 5, padding=(2, 1)), nn.MaxPool2d((2, 2))]


SHAPES: dict[str, tuple[tuple[int, int, int], Callable[[], list[nn.Module]]]] = {
    "femnist": (FEMNIST, lambda: [*cnn(FEMNIST, 62).children()]),
    "cifar": (CIFAR, lambda: [*cnn(CIFAR, 10).children()]),
    "relu first": ((1, 20, 20), lambda: [*rectified(1, 8, 5), nn.MaxPool2d(2), nn.ReLU(), *classified(512, 7)]),
    "odd": ((2, 19, 23), lambda: [*pooled(2, 5, 4, 1), *pooled(5, 13, 5, 2), *classified(13 * 4 * 5, 11)]),
    "padded": ((3, 17, 15), lambda: [*pooled(3, 33, 3), *pooled(33, 65, 5, 3), *classified(65 * 4 * 4, 5)]),
    "no pooling": ((3, 12, 12), lambda: [*rectified(3, 16, 3, 1), *rectified(16, 20, 3), *classified(2000, 10)]),
    "no relu": ((1, 14, 14), lambda: [*unrectified(), *classified(180, 3)]),
    "three": (
        CIFAR,
        lambda: [*pooled(3, 16, 3, 1), *pooled(16, 32, 3, 1), *pooled(32, 64, 3, 1), *classified(1024, 10)],
    ),
    "a ring with a border": ((1, 24, 24), lambda: [*pooled(1, 20, 5), *pooled(20, 50, 5, 2), *classified(1250, 9)]),
    "a ring without relu": (
        (2, 32, 32),
        lambda: [*pooled(2, 16, 5), nn.Conv2d(16, 24, 5), nn.MaxPool2d(2), *classified(600, 4)],
    ),
    "deep tail": (FEMNIST, lambda: [*pooled(1, 20, 5), *pooled(20, 50, 5), *deep_tail()]),
    "one by one": ((4, 6, 6), lambda: [*rectified(4, 9, 1), *pooled(9, 100, 2), *classified(400, 3)]),
    "perceptron": (FEMNIST, lambda: [*classified(784, 128), nn.ReLU(), nn.Linear(128, 62)]),
    "perceptrons": (
        (3, 5, 7),
        lambda: [
            *classified(105, 70),
            nn.ReLU(),
            nn.Linear(70, 33),
            nn.ReLU(),
            nn.Linear(33, 17),
            nn.Linear(17, 2),
        ],
    ),
    "wide": ((20, 16, 16), lambda: [*pooled(20, 40, 5, 2), *rectified(40, 70, 7), *classified(280, 4)]),
}


def problem_of(shape: str) -> tuple[Network, Tensor, Tensor]:
    image_shape, make = SHAPES[shape]
    network = Network(seeded(lambda: nn.Sequential(*make())))
    plan = describe(network.module, image_shape)
    assert plan is not None
    return network, noise((40, *image_shape)), drawn_labels(40, plan.classes)


@pytest.fixture(params=SHAPES)
def problem(request: pytest.FixtureRequest) -> tuple[Network, Tensor, Tensor]:
    return problem_of(request.param)


@pytest.fixture
def femnist_cnn() -> tuple[Network, Tensor, Tensor]:
    return Network(seeded(lambda: cnn(FEMNIST, 62))), noise((100, *FEMNIST)), drawn_labels(100, 62)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@needs_compiler
class TestAgreement:
    def test_a_step_is_the_gradient_in_float64(self, problem: tuple[Network, Tensor, Tensor]) -> None:
        assert distance(native_gradient(*problem), exact_gradient(*problem)) < 2e-6

    def test_each_layers_gradient_is_right_by_itself(self, problem: tuple[Network, Tensor, Tensor]) -> None:
        network = problem[0]
        pairs = zip(
            *(torch.split(whole, network.sizes) for whole in (native_gradient(*problem), exact_gradient(*problem))),
            strict=True,
        )
        assert all(distance(part, exact) < 5e-6 for part, exact in pairs)

    def test_logits_are_torchs(self, problem: tuple[Network, Tensor, Tensor]) -> None:
        network, images, _ = problem
        vector = network.initial()
        assert distance(native_logits(network)(vector, images), logits(network, vector, images)) < 3e-6

    def test_several_steps_with_momentum_are_local_update(self, problem: tuple[Network, Tensor, Tensor]) -> None:
        network, images, labels = problem
        training = LocalTraining(5, 16, 0.01, 0.9)
        rows = drawn_rows(40, 1, 5, 16)
        update = native(network, training, images, labels)(jobs_of(network, rows))[0]
        expected = local_update(network, network.initial(), images, labels, rows[0], training)
        assert distance(update, expected) < 1e-3  # a maximum between near equals may fall to the other one

    @needs_femnist
    def test_no_more_maxima_of_real_images_fall_to_another_position_than_torchs(self) -> None:
        """One that does makes a difference of 1e-4; it happens where float32 cannot tell two values apart."""
        network, images, labels = real_problem()
        ours, torchs = [], []
        for some in torch.split(torch.arange(len(images)), 50):
            problem = network, images[some], labels[some]
            exact = exact_gradient(*problem)
            ours.append(distance(native_gradient(*problem), exact) > 2e-6)
            torchs.append(distance(torch_gradient(*problem), exact) > 2e-6)
        assert sum(ours) <= sum(torchs)
        assert sum(ours) <= 2

    @needs_femnist
    @pytest.mark.parametrize("learning_rate", [0.001, 0.01, 0.1])
    def test_25_steps_stay_as_close_to_float64_as_torchs(self, learning_rate: float) -> None:
        """Now and then a maximum falls to another position, in torch as here, and how much that is, is luck."""
        training = LocalTraining(25, 16, learning_rate, 0.9)
        network, images, labels = real_problem()
        exact = Network(seeded(lambda: cnn(FEMNIST, 62)).double())
        ours, torchs = [], []
        for rows in drawn_rows(len(images), 3, 25, 16):
            expected = local_update(exact, network.initial().double(), images.double(), labels, rows, training)
            update = native(network, training, images, labels)(jobs_of(network, rows[None]))[0]
            ours.append(distance(update, expected))
            torchs.append(
                distance(local_update(network, network.initial(), images, labels, rows, training), expected)
            )
        assert typical(ours) < 10 * max(typical(torchs), 1e-5)


def typical(values: list[float]) -> float:
    """The geometric mean."""
    return float(torch.tensor(values).log().mean().exp())


@lru_cache(maxsize=1)
def real_problem() -> tuple[Network, Tensor, Tensor]:
    data = load_dataset("femnist:images=700", rng_for(0, "dataset"))
    images = torch.from_numpy(data.images).float()
    images = (images - images.mean(0)) / images.std(0).clamp_min(1)
    return Network(seeded(lambda: cnn(FEMNIST, 62))), images, torch.from_numpy(data.labels)


@needs_compiler
class TestTies:
    def test_of_equal_values_the_first_takes_the_gradient(self) -> None:
        """Black bars on paper: most cells hold four equal values."""
        network = Network(seeded(lambda: cnn(FEMNIST, 10)))
        images = torch.zeros(30, *FEMNIST)
        for row in range(30):
            images[row, :, :, row % 26 : row % 26 + 2] = 1
        problem = network, images, drawn_labels(30, 10)
        assert distance(native_gradient(*problem), exact_gradient(*problem)) < 2e-6

    def test_a_unit_at_zero_lets_no_gradient_through(self) -> None:
        network = Network(seeded(lambda: cnn(FEMNIST, 10)))
        with torch.no_grad():
            for name, parameter in network.module.named_parameters():
                if name in ("0.weight", "0.bias", "3.bias"):
                    parameter.zero_()
        problem = network, noise((8, *FEMNIST)), drawn_labels(8, 10)
        assert distance(native_gradient(*problem), exact_gradient(*problem)) < 2e-6

    def test_images_of_one_colour_are_like_any_other(self) -> None:
        network = Network(seeded(lambda: cnn(CIFAR, 10)))
        problem = network, torch.ones(8, *CIFAR), drawn_labels(8, 10)
        assert distance(native_gradient(*problem), exact_gradient(*problem)) < 2e-6


@needs_compiler
class TestRepeatability:
    def test_threads_do_not_change_a_bit_of_training(self, femnist_cnn: tuple[Network, Tensor, Tensor]) -> None:
        network, images, labels = femnist_cnn
        engine = native(network, LocalTraining(3, 50, 0.1, 0.9), images, labels)
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results += [engine(jobs_of(network, drawn_rows(100, jobs, 3, 50)))[0] for jobs in (1, 5)]
        assert all(torch.equal(result, results[0]) for result in results)

    def test_threads_do_not_change_a_bit_of_logits(self, femnist_cnn: tuple[Network, Tensor, Tensor]) -> None:
        network, images, _ = femnist_cnn
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(native_logits(network)(network.initial(), images))
        assert torch.equal(results[0], results[1])
        assert torch.equal(results[0], results[2])

    def test_an_image_is_judged_alone(self, problem: tuple[Network, Tensor, Tensor]) -> None:
        network, images, _ = problem
        evaluate, vector = native_logits(network), network.initial()
        together = evaluate(vector, images)
        assert torch.equal(together, torch.cat([evaluate(vector, image[None]) for image in images]))
        assert torch.equal(together[7:20], evaluate(vector, images[7:20]))

    @pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="the flags are for x86")
    @pytest.mark.parametrize("flag", ["-mno-avx512f", "-mno-avx"])
    @pytest.mark.parametrize("shape", ["femnist", "perceptrons", "wide"])
    def test_on_lesser_processors_too(self, flag: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """With narrower vectors GCC may split multiply-adds in some loops and not in others."""
        monkeypatch.setenv("CXX", " ".join([*build._compiler(), flag]))
        lesser = build.library.__wrapped__()
        monkeypatch.setattr(engine, "library", lambda: lesser)
        problem = problem_of(shape)
        self.test_an_image_is_judged_alone(problem)
        assert distance(native_gradient(*problem), exact_gradient(*problem)) < 2e-6

    def test_a_job_does_not_depend_on_the_others(self, femnist_cnn: tuple[Network, Tensor, Tensor]) -> None:
        network, images, labels = femnist_cnn
        torch.set_num_threads(2)
        engine = native(network, LocalTraining(2, 20, 0.1, 0.9), images, labels)
        jobs = jobs_of(network, drawn_rows(100, 5, 2, 20))
        alone = [engine(part)[0] for part in jobs.parts(1)]
        assert torch.equal(engine(jobs), torch.stack(alone))

    def test_nothing_that_is_handed_over_changes(self, femnist_cnn: tuple[Network, Tensor, Tensor]) -> None:
        network, images, labels = femnist_cnn
        jobs = jobs_of(network, drawn_rows(100, 2, 2, 20))
        copies = [tensor.clone() for tensor in (images, labels, jobs.starts, jobs.rows)]
        native(network, LocalTraining(2, 20, 0.1, 0.9), images, labels)(jobs)
        native_logits(network)(jobs.starts[0], images)
        pairs = zip(copies, (images, labels, jobs.starts, jobs.rows), strict=True)
        assert all(torch.equal(copy, tensor) for copy, tensor in pairs)


@needs_compiler
class TestExtremes:
    @pytest.mark.parametrize("scale", [float("nan"), float("inf"), 1e30, 1e12, 1e8, 1e-30, 0.0])
    def test_odd_starts_end_as_torchs(self, femnist_cnn: tuple[Network, Tensor, Tensor], scale: float) -> None:
        network, images, labels = femnist_cnn
        training = LocalTraining(2, 20, 0.01, 0.9)
        jobs = jobs_of(network, drawn_rows(100, 2, 2, 20), scale)
        update = native(network, training, images, labels)(jobs)[1]
        expected = local_update(network, jobs.starts[1], images, labels, jobs.rows[1], training)
        torch.testing.assert_close(update, expected, rtol=1e-4, atol=1e-6 * max(1, scale), equal_nan=True)

    @pytest.mark.parametrize("scale", [float("nan"), float("inf"), 1e30, 1e12, 1e8, 1e-30, 0.0])
    def test_odd_models_say_what_torchs_say(
        self, femnist_cnn: tuple[Network, Tensor, Tensor], scale: float
    ) -> None:
        network, images, _ = femnist_cnn
        vector = network.initial() * scale
        expected = logits(network, vector, images)
        finite = expected[expected.isfinite()]
        bound = 1e-5 * float(finite.abs().max()) if len(finite) else 0.0
        actual = native_logits(network)(vector, images)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=bound, equal_nan=True)

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
    @pytest.mark.parametrize("place", [0, 500, 832, 30_000, 52_096, 100_000, -1])
    def test_one_odd_weight_is_seen(
        self, femnist_cnn: tuple[Network, Tensor, Tensor], value: float, place: int
    ) -> None:
        network, images, labels = femnist_cnn
        jobs = jobs_of(network, drawn_rows(100, 1, 2, 20))
        jobs.starts[0, place] = value
        training = LocalTraining(2, 20, 0.01, 0.9)
        update = native(network, training, images, labels)(jobs)[0]
        expected = local_update(network, jobs.starts[0], images, labels, jobs.rows[0], training)
        assert torch.equal(update.isfinite(), expected.isfinite())
        said = native_logits(network)(jobs.starts[0], images)
        assert torch.equal(said.isfinite(), logits(network, jobs.starts[0], images).isfinite())

    @pytest.mark.parametrize("learning_rate", [1e4, 1e10, 1e20, 1e30, 1e38])
    def test_training_that_explodes_ends_as_torchs(
        self, femnist_cnn: tuple[Network, Tensor, Tensor], learning_rate: float
    ) -> None:
        network, images, labels = femnist_cnn
        training = LocalTraining(6, 20, learning_rate, 0.9)
        jobs = jobs_of(network, drawn_rows(100, 1, 6, 20))
        update = native(network, training, images, labels)(jobs)[0]
        expected = local_update(network, jobs.starts[0], images, labels, jobs.rows[0], training)
        assert torch.equal(update.isfinite().all(), expected.isfinite().all())

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e20])
    def test_odd_pixels_are_left_to_torch(self, femnist_cnn: tuple[Network, Tensor, Tensor], value: float) -> None:
        network, images, labels = femnist_cnn
        images[50, 0, 3, 4] = value
        vector = network.initial()
        expected = logits(network, vector, images)
        torch.testing.assert_close(native_logits(network)(vector, images), expected, equal_nan=True)
        with pytest.raises(NativeUnavailable, match="pixels"):
            native(network, LocalTraining(1, 1, 0.1, 0.9), images, labels)

    def test_denormals_are_flushed_in_every_thread_if_the_caller_flushes_them(self) -> None:
        """A layer whose only weight is so small that its products are denormal."""
        module = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(16, 2))
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.fill_(1e-20 if name.endswith("weight") else 0)
        network = Network(module)
        torch.set_num_threads(2)
        images = torch.ones(1000, 1, 4, 4)
        kept = native_logits(network)(network.initial(), images)
        with flushing_denormals():
            flushed = native_logits(network)(network.initial(), images)
        assert (kept > 0).all()
        assert (flushed == 0).all()
        assert (native_logits(network)(network.initial(), images) > 0).all()

    def test_a_label_that_is_no_class_is_left_to_torch(self, femnist_cnn: tuple[Network, Tensor, Tensor]) -> None:
        network, images, labels = femnist_cnn
        labels[0] = 62
        with pytest.raises(NativeUnavailable, match="labels"):
            native(network, LocalTraining(1, 1, 0.1, 0.9), images, labels)

    def test_labels_and_images_of_another_type_are_left_to_torch(
        self, femnist_cnn: tuple[Network, Tensor, Tensor]
    ) -> None:
        network, images, labels = femnist_cnn
        for pair in ((images, labels.int()), (images.double(), labels)):
            with pytest.raises(NativeUnavailable, match="float32 images and integer labels"):
                native(network, LocalTraining(1, 1, 0.1, 0.9), *pair)

    def test_no_step_changes_nothing(self, femnist_cnn: tuple[Network, Tensor, Tensor]) -> None:
        network, images, labels = femnist_cnn
        engine = native(network, LocalTraining(0, 20, 0.1, 0.9), images, labels)
        assert not engine(jobs_of(network, torch.zeros(2, 0, 20, dtype=torch.int64))).any()

    def test_where_memory_is_short_it_says_so(
        self, femnist_cnn: tuple[Network, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network, images, labels = femnist_cnn
        monkeypatch.setattr(engine, "library", lambda: SimpleNamespace(lidfl_train=lambda *_: 1))
        train = native(network, LocalTraining(1, 20, 0.1, 0.9), images, labels)
        with pytest.raises(MemoryError, match="not enough memory to train"):
            train(jobs_of(network, drawn_rows(100, 1, 1, 20)))

    def test_rows_that_are_not_there_are_refused(self, femnist_cnn: tuple[Network, Tensor, Tensor]) -> None:
        network, images, labels = femnist_cnn
        engine = native(network, LocalTraining(1, 1, 0.1, 0.9), images, labels)
        with pytest.raises(IndexError):
            engine(jobs_of(network, torch.tensor([[[100]]])))

    def test_no_images_have_no_logits(self, femnist_cnn: tuple[Network, Tensor, Tensor]) -> None:
        network, images, _ = femnist_cnn
        assert native_logits(network)(network.initial(), images[:0]).shape == (0, 62)


UNSUPPORTED = {
    "stride": sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Flatten(), nn.Linear(676, 2)),
    "dilation": sequential(nn.Conv2d(1, 4, 3, dilation=2), nn.Flatten(), nn.Linear(2304, 2)),
    "reflecting": sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect"), *classified(3136, 2)),
    "same": sequential(nn.Conv2d(1, 4, 3, padding="same"), nn.Flatten(), nn.Linear(3136, 2)),
    "no bias": sequential(nn.Conv2d(1, 4, 3, bias=False), nn.Flatten(), nn.Linear(2704, 2)),
    "not square": sequential(nn.Conv2d(1, 4, (3, 1)), nn.Flatten(), nn.Linear(2912, 2)),
    "pooling of 3": sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(256, 2)),
    "overlapping": sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(2116, 2)),
    "pooling first": sequential(nn.MaxPool2d(2), nn.Conv2d(1, 4, 5), nn.Flatten(), nn.Linear(400, 2)),
    "pooling twice": sequential(*pooled(1, 4, 5), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 2)),
    "dropout": sequential(*pooled(1, 4, 5), nn.Dropout(), nn.Flatten(), nn.Linear(576, 2)),
    "batch norm": sequential(nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(2304, 2)),
    "no flattening": sequential(nn.Linear(28, 2)),
    "no linear layer": sequential(nn.Conv2d(1, 4, 28), nn.Flatten()),
    "ReLU at the end": sequential(*pooled(1, 4, 5), nn.Flatten(), nn.Linear(576, 2), nn.ReLU()),
    "float64": sequential(nn.Conv2d(1, 4, 28), nn.Flatten(), nn.Linear(4, 2).double()),
    "not a sequence": nn.Flatten,
}


class TestRecognition:
    @pytest.mark.parametrize("name", UNSUPPORTED)
    def test_what_the_engine_cannot_run_has_no_plan(self, name: str) -> None:
        assert describe(UNSUPPORTED[name](), FEMNIST) is None

    def test_frozen_parameters_have_no_plan(self) -> None:
        module = cnn(FEMNIST, 62)
        next(module.parameters()).requires_grad_(False)
        assert describe(module, FEMNIST) is None

    def test_layers_that_are_used_twice_have_no_plan(self) -> None:
        shared = nn.Conv2d(1, 1, 3)
        assert describe(nn.Sequential(shared, shared, nn.Flatten(), nn.Linear(576, 2)), FEMNIST) is None

    @needs_compiler
    def test_a_model_that_the_engine_cannot_run_is_judged_by_torch_and_not_trained(self) -> None:
        network, images = Network(seeded(UNSUPPORTED["stride"])), noise((8, *FEMNIST))
        vector = network.initial()
        assert torch.equal(native_logits(network)(vector, images), logits(network, vector, images))
        with pytest.raises(NativeUnavailable, match="does not run this model"):
            native(network, LocalTraining(1, 1, 0.1, 0.9), images, drawn_labels(8, 2))

    def test_images_of_another_size_have_no_plan(self) -> None:
        assert describe(cnn(FEMNIST, 62), (1, 32, 32)) is None
        assert describe(cnn(FEMNIST, 62), (3, 28, 28)) is None

    @needs_compiler
    def test_the_engine_counts_the_parameters_that_the_module_has(
        self, problem: tuple[Network, Tensor, Tensor]
    ) -> None:
        network, images, _ = problem
        plan = describe(network.module, images.shape[1:])
        assert plan is not None
        shape = torch.tensor(plan.shape, dtype=torch.int32)
        assert build.library().lidfl_parameters(shape.data_ptr()) == network.dim


class TestBuilding:
    @pytest.mark.parametrize("compiler", ["/nowhere/c++", "false", "true"])
    def test_without_a_compiler_that_works_there_is_one_clear_reason(
        self, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CXX", compiler)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with pytest.raises(NativeUnavailable, match="cannot be built") as caught:
            build.library.__wrapped__()
        assert "\n" not in str(caught.value)
        assert not list(tmp_path.rglob("*.so"))

    def test_where_there_is_no_compiler_at_all_it_names_those_that_would_do(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setattr(shutil, "which", lambda _: None)
        monkeypatch.setattr(build, "library", build.library.__wrapped__)
        assert not is_available()
        with pytest.raises(NativeUnavailable, match=r"there is no c\+\+, g\+\+ or clang\+\+ here"):
            build.library()

    def test_of_what_a_compiler_says_the_first_error_is_the_reason(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compiler = tmp_path / "compiler"
        compiler.write_text(
            '#!/bin/sh\n[ "$1" = --version ] && exit 0\nprintf "a word\\nx.cpp: error: no\\n" >&2\nexit 1\n'
        )
        compiler.chmod(0o755)
        monkeypatch.setenv("CXX", str(compiler))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with pytest.raises(NativeUnavailable, match=r"cannot be built: x\.cpp: error: no$"):
            build.library.__wrapped__()

    def test_where_the_system_does_not_list_its_processors_their_kind_decides(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: Path) -> str:
            raise FileNotFoundError

        monkeypatch.setattr(Path, "read_text", refuse)
        monkeypatch.setattr(platform, "machine", lambda: "arm64")
        monkeypatch.setattr(platform, "processor", lambda: "arm")
        assert build._processor() == "arm64 arm"

    def test_a_cache_that_cannot_be_written_is_a_clear_reason(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lidfl").write_text("in the way")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with pytest.raises(NativeUnavailable):
            build.library.__wrapped__()

    def test_a_compiled_file_that_was_cut_short_is_built_anew(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compiler, runs = tmp_path / "compiler", tmp_path / "runs"
        compiler.write_text(
            f'#!/bin/sh\nfor last; do :; done\n[ "$1" = --version ] || echo ran | tee -a {runs} > "$last"\n'
        )
        compiler.chmod(0o755)
        monkeypatch.setenv("CXX", str(compiler))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        built = build.built()
        assert build.built() == built
        assert runs.read_text() == "ran\n"
        for damaged in (b"ra", b"", b"man\n"):
            built.write_bytes(damaged)
            assert build.built().read_bytes() == b"ran\n"
        assert runs.read_text() == 4 * "ran\n"

    @needs_compiler
    def test_two_processes_may_build_at_once(self, tmp_path: Path) -> None:
        command = [sys.executable, "-c", "from lidfl.learning.native import is_available; assert is_available()"]
        # What is tested is that they do not disturb each other, so what is compiled already stands for compiling.
        compiler = tmp_path / "compiler"
        compiler.write_text(
            f'#!/bin/sh\nfor last; do :; done\n[ "$1" = --version ] || cp {build.built()} "$last"\n'
        )
        compiler.chmod(0o755)
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": str(compiler)}
        both = [subprocess.Popen(command, env=environment) for _ in range(2)]
        assert [process.wait() for process in both] == [0, 0]
        assert len(list((tmp_path / "lidfl").iterdir())) == 1
