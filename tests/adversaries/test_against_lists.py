"""Attacks against lists do what they say, and a list of digits outlives the one that is meant to stop it."""

from math import prod
from pathlib import Path

import pytest
import torch
from numpy.random import default_rng
from torch import nn

from lidfl import Experiment, RunDirectory, run
from lidfl.adversaries.against_lists import clones, huge, permute, rescaled, seizure, shift, switch, trap
from lidfl.adversaries.attacks import empire, gauss, lie, sign_flip
from lidfl.learning.client import logits
from lidfl.learning.models import build_model
from lidfl.learning.parameters import Network
from tests.vectors import normal


def network(name: str) -> Network:
    return Network(build_model(name, (1, 12, 12), 4, seed=3))


def outputs(net: Network, model: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    return net.apply(net.unflatten(model), images, training=False)


IMAGES = torch.randn(20, 1, 12, 12, generator=torch.Generator().manual_seed(1))


def small_updates(net: Network, clients: int = 5) -> torch.Tensor:
    return 0.01 * normal(clients, net.dim, 0)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
@pytest.mark.parametrize("scale", [0.1, 3.0, 1000.0])
def test_a_trapped_model_is_the_same_function(name: str, scale: float) -> None:
    net = network(name)
    model = net.initial()
    torch.testing.assert_close(
        outputs(net, rescaled(model, net.shapes, scale), IMAGES), outputs(net, model, IMAGES), rtol=1e-3, atol=1e-4
    )


def test_a_trapped_model_cannot_be_trained_by_its_second_layer_alone() -> None:
    """The gradient of the first layer shrinks by s, that of the second grows by s."""
    net = network("mlp")
    images, labels = IMAGES, torch.arange(20) % 4

    def gradient(model: torch.Tensor) -> list[torch.Tensor]:
        leaf = model.clone().requires_grad_()
        (found,) = torch.autograd.grad(nn.functional.cross_entropy(outputs(net, leaf, images), labels), leaf)
        return list(torch.split(found, net.sizes))

    plain, trapped = gradient(net.initial()), gradient(rescaled(net.initial(), net.shapes, 10))
    torch.testing.assert_close(trapped[0], plain[0] / 10, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(trapped[2], plain[2] * 10, rtol=1e-3, atol=1e-5)


def test_softmax_regression_cannot_be_trapped() -> None:
    net = network("lr")
    honest = small_updates(net)
    torch.testing.assert_close(trap(honest, net.initial(), net.shapes), honest.mean(0), rtol=1e-4, atol=1e-6)


def test_a_shift_adds_the_same_to_every_logit() -> None:
    net = network("cnn")
    honest, start = small_updates(net), net.initial()
    sent = shift(honest, net.shapes, by=7.0)
    before, after = (outputs(net, start + u, IMAGES) for u in (honest.mean(0), sent))
    torch.testing.assert_close(after - before, torch.full_like(before, 7.0))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_seized_network_says_the_same_of_all_images_and_only_its_output_biases_have_a_gradient(name: str) -> None:
    net = network(name)
    start = net.initial()
    leaf = (start + seizure(small_updates(net), start, net.shapes)).requires_grad_()
    said = outputs(net, leaf, IMAGES)
    assert (said == said[0]).all()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(said, torch.arange(20) % 3), leaf)
    biases = prod(list(net.shapes.values())[-1])
    assert gradient[-biases:].abs().max() > 0
    assert gradient[:-biases].abs().max() == 0


@pytest.mark.parametrize("inside", [1.5, 3.0])
def test_inside_a_bound_an_attack_goes_as_far_as_it_may(inside: float) -> None:
    net = network("mlp")
    honest, start = small_updates(net), net.initial()
    bound = inside * float(honest.norm(dim=1).min())
    for sent in (
        trap(honest, start, net.shapes, scale=1000.0, inside=inside),
        shift(honest, net.shapes, inside=inside),
        seizure(honest, start, net.shapes, inside=inside),
    ):
        assert 0.99 * bound < float(sent.norm()) <= bound * (1 + 1e-5)


def test_huge_updates_are_finite_and_of_both_signs() -> None:
    sent = huge(3, torch.zeros(4))
    assert sent.isfinite().all()
    assert sent.sign()[:, 0].tolist() == [1, -1, 1]
    assert not sent.sum(0).mul(2).isfinite().all()


def test_clones_are_different_and_close_to_the_preferred_model() -> None:
    honest, start, preferred = normal(4, 100, 0), normal(1, 100, 1)[0], normal(1, 100, 2)[0]
    sent = clones(honest, start, preferred, 3, default_rng(0), spread=0.1)
    away = (start + sent - preferred).norm(dim=1) / honest.mean(0).norm()
    assert ((away > 0.05) & (away < 0.2)).all()
    assert len({tuple(row) for row in sent.tolist()}) == 3


def test_switch_takes_turns() -> None:
    own, honest, start = normal(2, 6, 0), normal(3, 6, 1), normal(1, 6, 2)[0]
    layers = {"weight": (2, 2), "bias": (2,)}

    def sent(round_index: int) -> torch.Tensor:
        return switch(own, honest, start, layers, 2, default_rng(0), round_index, every=10)

    turns = [
        sign_flip(own),
        lie(honest),
        trap(honest, start, layers),
        gauss(own, default_rng(0)),
        empire(honest, 2),
    ]
    for turn, expected in enumerate(turns):
        assert torch.equal(sent(10 * turn), expected)
        assert torch.equal(sent(10 * turn + 9), expected)
    assert torch.equal(sent(50), turns[0])


@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.4, 0.6, 0.8])
@pytest.mark.parametrize(
    "settings",
    [dict(method="lidfl-ranked"), dict(proposal="rknn", groups="all", election="ranked")],
    ids=["lidfl-ranked", "all groups"],
)
def test_nobody_stops_a_run_with_huge_updates(fraction: float, settings: dict[str, str], tmp_path: Path) -> None:
    """A tolerance of nan once ended it, with one Byzantine client of twenty in round 14."""
    experiment = Experiment.of(
        settings
        | dict(attack="huge", byzantine_fraction=fraction, rounds=20, local_steps=3, out=str(tmp_path / "run"))
    )
    summary = run(experiment)
    assert RunDirectory(experiment.out).final_state().models.parameters.isfinite().all()
    assert summary["deployed_accuracy"] > 0.4


def test_permuted_hidden_units_are_the_same_function_and_another_model() -> None:
    for model, shape in (("mlp:hidden=7x5", (1, 4, 4)), ("cnn", (1, 28, 28))):
        network = Network(build_model(model, shape, 3, seed=0))
        start, images = network.initial(), torch.randn(6, *shape, generator=torch.Generator().manual_seed(0))
        step = torch.full((2, network.dim), 0.01)
        sent = permute(step, start, network.shapes, default_rng(1))
        said, expected = (logits(network, start + update, images) for update in (sent, step[0]))
        torch.testing.assert_close(said, expected, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(sent, step[0], atol=1e-3)
