"""A model that cannot be trained is refused before round one, in one line; to find out changes nothing."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lidfl import Experiment, LidflError
from lidfl.learning.parameters import Network
from lidfl.settings.world import build_network, load_data


class Odd(nn.Module):
    """Softmax regression on the digits, whose answer is then made into something else."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Any:
        return self.answer(self.layer(images.flatten(1)))

    def answer(self, logits: Tensor) -> Any:
        return logits


class Two(Odd):
    def answer(self, logits: Tensor) -> Any:
        return (logits, logits) if self.training else logits


class Whole(Odd):
    def answer(self, logits: Tensor) -> Any:
        return logits.long()


class Complex(Odd):
    def answer(self, logits: Tensor) -> Any:
        return logits.to(torch.complex64)


class Detached(Odd):
    def answer(self, logits: Tensor) -> Any:
        return logits.detach()


class Narrow(Odd):
    def answer(self, logits: Tensor) -> Any:
        return logits[:, :3] if self.training else logits


class Failing(Odd):
    def answer(self, logits: Tensor) -> Any:
        if self.training:
            raise KeyError("width")
        return logits


class Backwards(torch.autograd.Function):
    """Can be computed, and has no gradient."""

    @staticmethod
    def forward(_context: Any, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(_context: Any, *_gradients: Any) -> Any:
        raise RuntimeError("no way back")


class OneWay(Odd):
    def answer(self, logits: Tensor) -> Any:
        return Backwards.apply(logits)  # type: ignore[no-untyped-call]


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(0.3), nn.Linear(64, 10))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Two, "gives a tuple in training; it must give its logits alone, a tensor"),
        (Whole, "gives logits of int64; they must be floats"),
        (Complex, "gives logits of complex64; they must be floats"),
        (Detached, "gives logits without a gradient; compute them without detach()"),
        (Narrow, "gives outputs of shape (3,) in training; digits has 10 classes"),
        (Failing, "does not take images of (1, 8, 8), 2 at a time in training: KeyError: 'width'"),
        (OneWay, "cannot be trained: RuntimeError: no way back"),
        (lazy, "the model's 1.weight has no size yet; give a size (nn.Linear for nn.LazyLinear)"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_before_round_one(model: Any, told: str) -> None:
    experiment = Experiment(model=model)
    with pytest.raises(LidflError) as error:
        build_network(experiment, load_data(experiment))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_lazy_module_given_in_python_is_refused_as_well() -> None:
    with pytest.raises(LidflError, match="has no size yet"):
        Experiment(model=lazy())


def test_a_batch_of_one_is_tried_where_clients_train_on_one() -> None:
    experiment = Experiment(model=normalised, batch_size=1)
    with pytest.raises(LidflError, match="1 at a time in training: ValueError: Expected more than 1 value"):
        build_network(experiment, load_data(experiment))


def test_to_try_a_model_changes_neither_its_numbers_nor_the_random_state() -> None:
    experiment = Experiment(model=normalised)
    data, before = load_data(experiment), torch.get_rng_state()
    network = build_network(experiment, data)
    assert torch.equal(torch.get_rng_state(), before)
    fresh = dict(network.module.named_buffers())
    assert torch.equal(fresh["1.running_mean"], torch.zeros(64))
    assert int(fresh["1.num_batches_tracked"]) == 0
    assert all(parameter.grad is None for parameter in network.module.parameters())
    assert torch.equal(network.initial(), Network(network.module).initial())
