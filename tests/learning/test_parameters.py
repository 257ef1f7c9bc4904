"""A module is one vector, trained as torch.optim.SGD trains it, and left as it was."""

import math
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from torch import Tensor, nn

from lidfl.errors import LidflError
from lidfl.learning.client import LocalTraining, candidate_losses, draw_batches, image_losses, local_update, logits
from lidfl.learning.models import build_model
from lidfl.learning.parameters import Network
from lidfl.types import Parameters
from tests.vectors import close

SHAPE, CLASSES, COUNT = (1, 6, 6), 4, 20
TRAINING = LocalTraining(steps=5, batch_size=5, learning_rate=0.1, momentum=0.9)


def tiny_conv() -> nn.Module:
    layers = [nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(3, 4, 2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4, CLASSES))


def batch_norm() -> nn.Module:
    layers = [nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5)]
    return nn.Sequential(*layers, nn.BatchNorm1d(5), nn.Linear(5, CLASSES))


def dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.Dropout(0.5), nn.Linear(16, CLASSES))


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last = nn.Linear(36, 36), nn.Linear(36, 36), nn.Linear(36, CLASSES)
        self.two.weight = self.one.weight

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.last(self.two(self.one(images.flatten(1)).tanh()).tanh())
        return logits


MODULES: dict[str, Callable[[], nn.Module]] = {
    "lr": lambda: build_model("lr", SHAPE, CLASSES, seed=1),
    "mlp": lambda: build_model("mlp:hidden=8", SHAPE, CLASSES, seed=1),
    "conv": tiny_conv,
    "batch_norm": batch_norm,
    "tied": Tied,
    "cumulative_norm": lambda: nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(36, momentum=None), nn.Linear(36, CLASSES)
    ),
}
every_module = pytest.mark.parametrize("name", MODULES)


def frozen() -> nn.Module:
    """A model of which only the last layer is trained."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(SHAPE), 5), nn.ReLU(), nn.Linear(5, CLASSES))
    module[1].requires_grad_(False)
    return module


class Unused(nn.Module):
    """A model with a layer that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(math.prod(SHAPE), CLASSES)
        self.spare = nn.Linear(3, 3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.used(images.flatten(1))
        return logits


def test_frozen_parameters_stay_as_they_are() -> None:
    network = Network(frozen())
    update = network.unflatten(update_of(network))
    assert update["1.weight"].abs().max() == 0
    assert update["3.weight"].abs().max() > 0


def test_parameters_that_the_model_does_not_use_stay_as_they_are() -> None:
    network = Network(Unused())
    update = network.unflatten(update_of(network))
    assert update["spare.weight"].abs().max() == 0
    assert update["used.weight"].abs().max() > 0


def test_a_module_of_several_float_types_is_refused() -> None:
    with pytest.raises(LidflError, match="mixes float types"):
        Network(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


def made(name: str) -> nn.Module:
    """The same module each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return MODULES[name]()


def images_and_labels(seed: int = 0, count: int = COUNT) -> tuple[Tensor, Tensor]:
    rng = default_rng(seed)
    images = torch.from_numpy(rng.standard_normal((count, *SHAPE), dtype="float32"))
    return images, torch.from_numpy(rng.integers(0, CLASSES, count))


def batches(seed: int = 0) -> Tensor:
    return torch.from_numpy(draw_batches(COUNT, TRAINING, default_rng(seed)))


def update_of(network: Network, dropout_seed: int = 0) -> Parameters:
    return local_update(
        network, network.initial(), *images_and_labels(), batches(), TRAINING, dropout_seed=dropout_seed
    )


def joined(module: nn.Module) -> Tensor:
    """Parameters and then floating-point buffers, by torch's own listing."""
    buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
    return torch.cat([tensor.detach().flatten() for tensor in [*module.parameters(), *buffers]])


# Module and vector.


@every_module
def test_the_vector_holds_parameters_and_then_floating_point_buffers(name: str) -> None:
    module = made(name)
    network = Network(module)
    assert torch.equal(network.initial(), joined(module))
    assert network.dim == len(joined(module))


@every_module
def test_cutting_a_vector_and_joining_it_again_changes_nothing(name: str) -> None:
    network = Network(made(name))
    vector = torch.arange(network.dim, dtype=torch.float32)
    parts = network.unflatten(vector)
    assert torch.equal(network.flatten(parts), vector)
    assert {key: part.shape for key, part in parts.items()} == network.shapes
    assert all(part.untyped_storage().data_ptr() == vector.data_ptr() for part in parts.values())


def test_running_statistics_are_in_the_vector_and_counters_are_not() -> None:
    network = Network(batch_norm())
    assert {"1.running_mean", "1.running_var", "5.running_mean", "5.running_var"} <= network.shapes.keys()
    assert "1.num_batches_tracked" not in network.shapes
    assert set(network.counters) == {"1.num_batches_tracked", "5.num_batches_tracked"}


def test_a_module_without_parameters_is_refused() -> None:
    with pytest.raises(LidflError, match="no parameters"):
        Network(nn.Flatten())


@every_module
def test_a_picked_state_dict_loads_into_a_plain_module_and_gives_the_same_logits(name: str) -> None:
    network = Network(made(name))
    vector = network.initial() + update_of(network)
    plain = MODULES[name]()
    plain.load_state_dict(network.state_dict(vector), strict=True)
    images, labels = images_and_labels(1)
    plain.eval()
    expected = plain(images).detach()
    assert close(network.apply(network.unflatten(vector), images, training=False), expected, 1e-6)
    assert close(
        image_losses(logits(network, vector, images), labels),
        F.cross_entropy(expected, labels, reduction="none"),
    )


def test_a_state_dict_is_its_own_memory() -> None:
    network = Network(made("batch_norm"))
    vector = network.initial()
    state = network.state_dict(vector)
    for tensor in state.values():
        tensor.zero_()
    assert torch.equal(vector, network.initial())
    assert network.initial().any()


# Local training.


def plain_update(module: nn.Module) -> Tensor:
    """The same training with torch's own optimiser, on a copy of the module."""
    trained = deepcopy(module).train()
    optimizer = torch.optim.SGD(trained.parameters(), lr=TRAINING.learning_rate, momentum=TRAINING.momentum)
    images, labels = images_and_labels()
    for step in batches():
        optimizer.zero_grad()
        F.cross_entropy(trained(images[step]), labels[step]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return joined(trained) - joined(module)


@every_module
def test_local_training_is_that_of_torchs_own_optimiser(name: str) -> None:
    module = made(name)
    update = update_of(Network(module))
    assert update.abs().max() > 0.01
    assert close(update, plain_update(module), 1e-6)


def test_running_statistics_are_trained_along() -> None:
    network = Network(made("batch_norm"))
    parts = network.unflatten(update_of(network))
    assert all(parts[f"{layer}.running_{kind}"].any() for layer in (1, 5) for kind in ("mean", "var"))


@every_module
def test_local_training_never_changes_the_module_nor_the_start(name: str) -> None:
    module = made(name)
    network = Network(module)
    start = network.initial()
    local_update(network, start, *images_and_labels(), batches(), TRAINING)
    candidate_losses(network, start[None], *images_and_labels())
    untouched = made(name).state_dict()
    assert torch.equal(start, joined(made(name)))
    assert all(torch.equal(tensor, untouched[key]) for key, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_training_that_is_no_longer_finite_ends_there() -> None:
    module = made("mlp")
    steps = []
    module.register_forward_hook(lambda *_: steps.append(1))
    network = Network(module)
    explosive = LocalTraining(steps=5, batch_size=5, learning_rate=1e38, momentum=0.9)
    update = local_update(network, network.initial(), *images_and_labels(), batches(), explosive)
    assert not update.isfinite().all()
    assert len(steps) < 5


def test_integer_buffers_stay_as_initialised() -> None:
    module = made("batch_norm")
    module[1].num_batches_tracked.fill_(41)  # type: ignore[index]
    network = Network(module)
    state = network.state_dict(network.initial() + update_of(network))
    assert [state[f"{layer}.num_batches_tracked"].item() for layer in (1, 5)] == [41, 0]
    assert state["1.num_batches_tracked"].dtype == torch.long


def test_the_update_is_detached_from_its_history() -> None:
    update = update_of(Network(made("mlp")))
    assert not update.requires_grad
    assert update.is_contiguous()


def test_dropout_is_repeatable_with_the_same_seed() -> None:
    network = Network(dropout())
    before = torch.random.get_rng_state()
    assert torch.equal(update_of(network, dropout_seed=5), update_of(network, dropout_seed=5))
    assert not torch.equal(update_of(network, dropout_seed=5), update_of(network, dropout_seed=6))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_dropout_is_off_when_candidates_are_judged() -> None:
    network = Network(dropout())
    candidates = network.initial().expand(2, -1)
    one, other = candidate_losses(network, candidates, *images_and_labels())
    assert one == other


def test_a_candidates_loss_is_the_mean_over_all_images_and_infinite_if_it_is_no_number() -> None:
    module = made("lr")
    network = Network(module)
    images, labels = images_and_labels(2, count=600)
    broken = torch.full((network.dim,), float("nan"))
    losses = candidate_losses(network, torch.stack([network.initial(), broken]), images, labels)
    assert losses.tolist() == [pytest.approx(F.cross_entropy(module(images), labels).item()), np.inf]


# Batches.


@given(
    num_images=st.integers(1, 40),
    steps=st.integers(1, 12),
    batch_size=st.integers(1, 50),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100)
def test_batches_are_whole_and_repeat_no_image_within_a_pass(
    num_images: int, steps: int, batch_size: int, seed: int
) -> None:
    training = LocalTraining(steps, batch_size, 0.1, 0.9)
    drawn = draw_batches(num_images, training, default_rng(seed))
    size = min(batch_size, num_images)
    assert drawn.shape == (steps, size)
    assert set(drawn.flatten().tolist()) <= set(range(num_images))
    per_pass = num_images // size
    for first in range(0, steps, per_pass):
        seen = drawn[first : first + per_pass].flatten().tolist()
        assert len(set(seen)) == len(seen)


def test_a_client_with_fewer_images_than_a_batch_uses_all_of_them_in_every_step() -> None:
    drawn = draw_batches(3, LocalTraining(4, 32, 0.1, 0.9), default_rng(0))
    assert np.sort(drawn, axis=1).tolist() == [[0, 1, 2]] * 4


def test_each_pass_is_shuffled_afresh_and_leaves_no_image_out_for_ever() -> None:
    drawn = draw_batches(11, LocalTraining(60, 5, 0.1, 0.9), default_rng(0))
    passes = drawn.reshape(30, 10)
    assert len({tuple(one) for one in passes.tolist()}) == 30
    counts = np.bincount(drawn.flatten(), minlength=11)
    assert counts.min() > 20


def test_the_same_generator_draws_the_same_batches() -> None:
    assert (batches(4) == batches(4)).all()
    assert (batches(4) != batches(5)).any()


# The paper's CNN.


@pytest.mark.parametrize(
    ("shape", "classes", "sizes"),
    [
        ((1, 28, 28), 62, (832, 51_264, 99_262)),  # 25·32 + 32, 25·32·64 + 64, 1600·62 + 62
        ((1, 32, 32), 62, (832, 51_264, 99_262)),
        ((3, 32, 32), 10, (2_432, 51_264, 16_010)),
    ],
)
def test_the_cnn_has_the_papers_shape(
    shape: tuple[int, int, int], classes: int, sizes: tuple[int, int, int]
) -> None:
    module = build_model("cnn", shape, classes, seed=0)
    parameters = [parameter.numel() for parameter in module.parameters()]
    assert [weight + bias for weight, bias in zip(parameters[::2], parameters[1::2], strict=True)] == [*sizes]
    assert Network(module).dim == sum(sizes)


def papers_cnn(images: Tensor, weights: list[Tensor]) -> Tensor:
    """Input(32×32)-C(32)-R-M-C(64)-R-M-L, in this order, after padding with background."""
    spare = (32 - images.shape[-1]) // 2
    features = F.pad(images, (spare, spare, spare, spare))
    for weight, bias in (weights[0:2], weights[2:4]):
        features = F.max_pool2d(F.relu(F.conv2d(features, weight, bias)), 2)
    return F.linear(features.flatten(1), weights[4], weights[5])


@pytest.mark.parametrize(("shape", "classes"), [((1, 28, 28), 62), ((3, 32, 32), 10)])
def test_the_cnn_is_pad_convolve_relu_pool_in_the_papers_order(shape: tuple[int, int, int], classes: int) -> None:
    module = build_model("cnn", shape, classes, seed=0)
    images = torch.from_numpy(default_rng(0).standard_normal((3, *shape), dtype="float32"))
    with torch.no_grad():
        assert close(module(images), papers_cnn(images, list(module.parameters())), 1e-5)
