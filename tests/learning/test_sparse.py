"""Softmax regression on what is inked alone gives what whole products give, whatever the images and the numbers."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from lidfl import Experiment, LidflError
from lidfl.learning.client import LocalTraining, local_update, logits
from lidfl.learning.engines import candidate_engines
from lidfl.learning.models import build_model
from lidfl.learning.native import NativeUnavailable, is_available
from lidfl.learning.native.sparse import Inked, background_of, is_worth_it, sparse, sparse_logits
from lidfl.learning.parameters import Network
from lidfl.simulation.simulator import Simulator
from tests.learning.test_native import distance, drawn_labels, drawn_rows, exact_gradient, jobs_of
from tests.real_data import needs_femnist

pytestmark = pytest.mark.skipif(not is_available(), reason="no C++ compiler")
SHAPE = (1, 9, 11)
UNIT = 2.0**20
"""A learning rate next to which the start is nothing: one step's update is the gradient."""
ODD = [float("nan"), float("inf"), 1e30, 1e12, 1e-30, 0.0]


def inked(count: int, share: float = 0.15, seed: int = 1) -> Tensor:
    """Images on paper that is not 0 anywhere, so that a forgotten background is seen."""
    generator = torch.Generator().manual_seed(seed)
    paper = torch.randn(SHAPE, generator=generator)
    ink = torch.rand((count, *SHAPE), generator=generator) < share
    return torch.where(ink, torch.randn((count, *SHAPE), generator=generator), paper)


def softmax(classes: int) -> Network:
    return Network(build_model("lr", SHAPE, classes, seed=0))


@pytest.fixture(params=[2, 10, 16, 17, 62, 100])
def problem(request: pytest.FixtureRequest) -> tuple[Network, Tensor, Tensor]:
    return softmax(request.param), inked(60), drawn_labels(60, request.param)


@pytest.fixture
def letters() -> tuple[Network, Tensor, Tensor]:
    return softmax(62), inked(100), drawn_labels(100, 62)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def says(network: Network, vector: Tensor, images: Tensor) -> Tensor:
    def refuse(_vector: Tensor, _images: Tensor) -> Tensor:
        return logits(network, _vector, _images)

    return sparse_logits(network, background_of(images), refuse)(vector, images)


def test_a_step_is_the_gradient_in_float64(problem: tuple[Network, Tensor, Tensor]) -> None:
    network, images, labels = problem
    engine = sparse(network, LocalTraining(1, len(images), UNIT, 0.0), images, labels)
    found = engine(jobs_of(network, torch.arange(len(images)).view(1, 1, -1)))[0].double() / -UNIT
    assert distance(found, exact_gradient(network, images, labels)) < 2e-6


def test_logits_are_torchs(problem: tuple[Network, Tensor, Tensor]) -> None:
    network, images, _ = problem
    vector = network.initial()
    assert distance(says(network, vector, images), logits(network, vector, images)) < 2e-6


@pytest.mark.parametrize("learning_rate", [0.001, 0.01, 0.1])
def test_25_steps_stay_as_close_to_float64_as_torchs(
    letters: tuple[Network, Tensor, Tensor], learning_rate: float
) -> None:
    network, images, labels = letters
    exact = Network(build_model("lr", SHAPE, 62, seed=0).double())
    training, rows = LocalTraining(25, 16, learning_rate, 0.9), drawn_rows(100, 1, 25, 16)
    expected = local_update(exact, network.initial().double(), images.double(), labels, rows[0], training)
    torchs = local_update(network, network.initial(), images, labels, rows[0], training)
    ours = sparse(network, training, images, labels)(jobs_of(network, rows))[0]
    assert distance(ours, expected) < 3 * distance(torchs, expected)


@needs_femnist
def test_real_letters_train_as_by_whole_products() -> None:
    runs = [Simulator.of(Experiment(dataset="femnist", engine=name)).workshop for name in ("sparse", "linear")]
    updates = []
    for shop in runs:
        ((_, jobs),) = shop.alike([(3, 0)], shop.network.initial()[None], 0, "batch", 25)
        updates.append(shop.engine(jobs)[0])
    assert distance(updates[0], updates[1]) < 1e-5


def test_any_background_is_right(letters: tuple[Network, Tensor, Tensor]) -> None:
    network, images, _ = letters
    vector = network.initial()
    for background in (torch.zeros(99), images[0].flatten(), background_of(images)):
        said = sparse_logits(network, background, lambda *_: torch.empty(0))(vector, images)
        assert distance(said, logits(network, vector, images)) < 2e-6


def test_what_is_kept_is_the_image_again(letters: tuple[Network, Tensor, Tensor]) -> None:
    images = letters[1]
    kept = Inked.of(images, background_of(images))
    again = kept.background.repeat(len(images), 1)
    for row, (first, last) in enumerate(zip(kept.offsets[:-1], kept.offsets[1:], strict=True)):
        again[row, kept.features[first:last].long()] += kept.deviations[first:last]
    torch.testing.assert_close(again, images.flatten(1))
    assert len(kept.deviations) < 0.2 * images.numel()


def test_threads_and_company_do_not_change_a_bit(letters: tuple[Network, Tensor, Tensor]) -> None:
    network, images, labels = letters
    engine = sparse(network, LocalTraining(3, 20, 0.1, 0.9), images, labels)
    jobs = jobs_of(network, drawn_rows(100, 5, 3, 20))
    many = images.repeat(30, 1, 1, 1)
    updates, said = [], []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        updates += [engine(jobs), torch.cat([engine(part) for part in jobs.parts(2)])]
        said.append(says(network, network.initial(), many))
    assert all(torch.equal(update, updates[0]) for update in updates)
    assert all(torch.equal(one, said[0]) for one in said)
    assert torch.equal(said[0][7:20], says(network, network.initial(), many)[7:20])


def test_an_image_is_judged_alone(letters: tuple[Network, Tensor, Tensor]) -> None:
    network, images, _ = letters
    judge = sparse_logits(network, background_of(images), lambda *_: torch.empty(0))
    together = judge(network.initial(), images)
    for cut in (slice(0, 1), slice(7, 20), slice(0, 100)):
        assert torch.equal(together[cut], judge(network.initial(), images[cut]))


@pytest.mark.parametrize("scale", ODD)
def test_odd_models_end_and_speak_as_torchs(letters: tuple[Network, Tensor, Tensor], scale: float) -> None:
    network, images, labels = letters
    training = LocalTraining(2, 20, 0.01, 0.9)
    jobs = jobs_of(network, drawn_rows(100, 2, 2, 20), scale)
    update = sparse(network, training, images, labels)(jobs)[1]
    expected = local_update(network, jobs.starts[1], images, labels, jobs.rows[1], training)
    torch.testing.assert_close(update, expected, rtol=1e-4, atol=1e-6 * max(1, scale), equal_nan=True)
    said, torchs = says(network, jobs.starts[0], images), logits(network, jobs.starts[0], images)
    bound = 1e-5 * float(torchs.nan_to_num(0, 0, 0).abs().max())
    torch.testing.assert_close(said, torchs, rtol=1e-4, atol=bound, equal_nan=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
@pytest.mark.parametrize("place", [0, 700, -1])
def test_one_odd_weight_is_seen(letters: tuple[Network, Tensor, Tensor], value: float, place: int) -> None:
    network, images, labels = letters
    jobs = jobs_of(network, drawn_rows(100, 1, 2, 20))
    jobs.starts[0, place] = value
    training = LocalTraining(2, 20, 0.01, 0.9)
    update = sparse(network, training, images, labels)(jobs)[0]
    expected = local_update(network, jobs.starts[0], images, labels, jobs.rows[0], training)
    assert torch.equal(update.isfinite(), expected.isfinite())
    said = says(network, jobs.starts[0], images)
    assert torch.equal(said.isfinite(), logits(network, jobs.starts[0], images).isfinite())


def test_training_that_explodes_ends_as_torchs(letters: tuple[Network, Tensor, Tensor]) -> None:
    network, images, labels = letters
    for rate in (1e10, 1e30, 1e38):
        training, jobs = LocalTraining(6, 20, rate, 0.9), jobs_of(network, drawn_rows(100, 1, 6, 20))
        update = sparse(network, training, images, labels)(jobs)[0]
        expected = local_update(network, jobs.starts[0], images, labels, jobs.rows[0], training)
        assert torch.equal(update.isfinite(), expected.isfinite())


def test_images_full_of_ink_are_left_to_whole_products() -> None:
    network, full = softmax(4), inked(60, share=0.9)
    assert candidate_engines(network, inked(60)) == ["sparse", "linear"]
    assert candidate_engines(network, full) == ["linear"]
    assert not is_worth_it(inked(60).index_fill(0, torch.tensor([3]), float("nan")))
    with pytest.raises(NativeUnavailable, match="mostly background"):
        sparse(network, LocalTraining(1, 1, 0.1, 0.0), full, drawn_labels(60, 4))


def test_an_experiment_that_asks_for_it_with_such_images_is_refused_in_a_line() -> None:
    with pytest.raises(LidflError, match="engine 'sparse' cannot train model 'lr' here; choose linear"):
        Simulator.of(Experiment(dataset="digits", engine="sparse"))
