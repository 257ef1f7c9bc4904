"""Balance undoes what changes a model and not its function, and leaves honest training alone."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from numpy.random import default_rng
from torch import Tensor, nn

from lidfl.adversaries.against_lists import rescaled
from lidfl.learning.alignment import aligned
from lidfl.learning.balance import Balance, balance_of
from lidfl.learning.client import LocalTraining, draw_batches, local_update
from lidfl.learning.models import build_model
from lidfl.learning.parameters import Network

IMAGES = torch.randn(64, 1, 12, 12, generator=torch.Generator().manual_seed(1))
LABELS = (IMAGES.flatten(1)[:, :4].argmax(1)) % 4


def deep() -> nn.Module:
    """Two convolutions and two linear layers, one of them without bias."""
    torch.manual_seed(5)
    first = (nn.Conv2d(1, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 7, 3, bias=False), nn.ReLU())
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(63, 9), nn.ReLU(), nn.Dropout(0.1), nn.Linear(9, 4))


NETWORKS = {
    "lr": lambda: build_model("lr", (1, 12, 12), 4, seed=3),
    "mlp": lambda: build_model("mlp", (1, 12, 12), 4, seed=3),
    "cnn": lambda: build_model("cnn", (1, 12, 12), 4, seed=3),
    "deep": deep,
}


def made(name: str) -> tuple[Network, Balance]:
    network = Network(NETWORKS[name]())
    balance = balance_of(network, network.initial())
    assert balance is not None
    return network, balance


def said(network: Network, model: Tensor) -> Tensor:
    return F.log_softmax(network.apply(network.unflatten(model), IMAGES, training=False), 1)


def trained(network: Network, start: Tensor, steps: int = 20) -> Tensor:
    work = LocalTraining(steps, 16, 0.01, 0.9)
    rows = torch.from_numpy(draw_batches(len(IMAGES), work, default_rng(0)))
    return start + local_update(network, start, IMAGES, LABELS, rows, work)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_a_balanced_model_is_the_same_function(name: str) -> None:
    network, balance = made(name)
    for model in (network.initial(), torch.randn(network.dim, generator=torch.Generator().manual_seed(2)) * 0.2):
        (formed,) = balance(model[None])
        torch.testing.assert_close(said(network, formed), said(network, model), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["mlp", "cnn", "deep"])
@pytest.mark.parametrize("scale", [1e-3, 0.5, 3.0, 10.0, 1000.0])
def test_a_trap_is_undone_whatever_its_scale(name: str, scale: float) -> None:
    network, balance = made(name)
    model = trained(network, network.initial())
    trapped = rescaled(model, network.shapes, scale)
    untrapped, formed = balance(torch.stack([trapped, model]))
    assert float((untrapped - formed).norm()) < 1e-3 * float((trapped - model).norm())
    assert float((untrapped - formed).norm()) < 1e-2


def test_units_that_are_scaled_one_by_one_are_undone_too() -> None:
    network, balance = made("mlp")
    model = trained(network, network.initial())
    factors = 10 ** torch.linspace(-2, 2, 128)
    parts = list(torch.split(model, network.sizes))
    parts[0] = (parts[0].view(128, -1) * factors[:, None]).flatten()
    parts[1] = parts[1] * factors
    parts[2] = (parts[2].view(4, 128) / factors).flatten()
    untrapped, formed = balance(torch.stack([torch.cat(parts), model]))
    torch.testing.assert_close(untrapped, formed, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_what_is_added_to_all_classes_is_taken_away(name: str) -> None:
    network, balance = made(name)
    model = trained(network, network.initial())
    shifted = model.clone()
    shifted[-4:] += 50.0
    shifted[-4 - (network.sizes[-2]) : -4].view(4, -1).add_(0.5)
    unshifted, formed = balance(torch.stack([shifted, model]))
    torch.testing.assert_close(unshifted, formed, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_honest_training_is_hardly_moved(name: str) -> None:
    network, balance = made(name)
    start = network.initial()
    model = trained(network, start, steps=50)
    (formed,) = balance(model[None])
    assert float((formed - model).norm()) < 0.1 * float((model - start).norm())


def test_what_needs_no_balance_keeps_its_bits() -> None:
    network, balance = made("cnn")
    assert torch.equal(balance(network.initial()[None])[0], network.initial())


def shuffled(model: Tensor, balance: Balance, seed: int) -> Tensor:
    """The same function, every hidden layer's units in another order; written anew here, unit by unit."""
    shuffled, rng = model.clone(), default_rng(seed)
    for here, after in pairwise(balance.layers):
        before, order = shuffled.clone(), rng.permutation(here.units)
        rows, taken = before[here.weight].view(here.units, -1), before[after.weight]
        taken = taken.view(after.units, here.units, -1)
        for place, unit in enumerate(order.tolist()):
            shuffled[here.weight].view(here.units, -1)[place] = rows[unit]
            shuffled[after.weight].view(after.units, here.units, -1)[:, place] = taken[:, unit]
            if here.bias is not None:
                shuffled[here.bias][place] = before[here.bias][unit]
    return shuffled


@pytest.mark.parametrize("name", ["mlp", "cnn", "deep"])
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_units_in_another_order_are_put_back_rescaled_or_not(name: str, scale: float) -> None:
    network, balance = made(name)
    start = trained(network, network.initial())
    grown = trained(network, start)
    sent = shuffled(rescaled(grown, network.shapes, scale), balance, seed=4)
    torch.testing.assert_close(said(network, sent), said(network, grown), rtol=1e-3, atol=1e-3)
    assert (sent - grown).norm() > 0.5 * grown.norm()
    (formed,) = balance(sent[None], start[None])
    torch.testing.assert_close(formed, balance(grown[None])[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_honest_training_keeps_its_order_and_its_bits(name: str) -> None:
    network, balance = made(name)
    start = network.initial()
    for _ in range(5):
        grown = trained(network, start, steps=50)
        assert aligned(grown, start, balance.layers) is grown
        start = grown


def test_units_that_are_twins_or_dead_do_not_change_places() -> None:
    network, balance = made("mlp")
    model = network.initial()
    first = balance.layers[0]
    rows = model[first.weight].view(first.units, -1)
    rows[3], rows[5] = rows[2], 0.0
    assert first.bias is not None
    model[first.bias][3], model[first.bias][5] = model[first.bias][2], 0.0
    assert aligned(model, model, balance.layers) is model


@pytest.mark.parametrize("value", [0.0, 3e38, -3e38, 1e-42])
def test_no_model_makes_it_fail(value: float) -> None:
    network, balance = made("deep")
    for model in (torch.full((network.dim,), value), network.initial().index_fill(0, torch.tensor([3]), value)):
        assert balance(model[None]).isfinite().all()
        assert balance(model[None], network.initial()[None]).isfinite().all()
    overflown = network.initial().index_fill(0, torch.tensor([3]), torch.inf)
    assert torch.equal(balance(overflown[None], network.initial()[None])[0], overflown)
    assert balance(torch.empty(0, network.dim)).shape == (0, network.dim)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)),
        nn.Sequential(nn.Conv2d(4, 4, 1, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)),
    ],
    ids=["normalised", "not homogeneous", "grouped"],
)
def test_what_is_not_a_plain_chain_has_no_balance(module: nn.Module) -> None:
    network = Network(module)
    assert balance_of(network, network.initial()) is None
