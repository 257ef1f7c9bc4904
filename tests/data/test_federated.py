"""Clients get their own images in three splits, standardised by the training images of all."""

import subprocess
import sys
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.typing import NDArray

from lidfl.data.base import Dataset, Images
from lidfl.data.federated import federate, federate_drawn, measure
from lidfl.data.shards import FederatedData, Shards, Statistics
from lidfl.data.splits import parse_split, split_sizes
from lidfl.errors import LidflError

RATIO = (36, 9, 5)


def byte_data(count: int = 100, standardise: Literal["pixel", "channel"] = "pixel") -> Dataset:
    """Images with their own number in one corner, noise elsewhere, and label number % 7."""
    images = default_rng(5).integers(0, 256, (count, 2, 3, 4), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(count)
    return Dataset(images, np.arange(count) % 7, 7, standardise)


def dealt(*sizes: int) -> list[NDArray[np.int64]]:
    return np.split(default_rng(6).permutation(sum(sizes)), np.cumsum(sizes)[:-1])


def numbers(shards: Shards, statistics: Statistics) -> list[int]:
    """Undo the standardisation of the corner that holds each image's number."""
    values = shards.images * statistics.std + statistics.mean
    return [round(number) for number in (values[:, 0, 0, 0] * 255).tolist()]


@pytest.fixture
def data() -> FederatedData:
    return federate(byte_data(), dealt(50, 3, 47), RATIO, default_rng(0))


# Splits.


def test_a_split_is_read_as_three_numbers() -> None:
    assert parse_split("36:9:5") == RATIO


@pytest.mark.parametrize("text", ["", "1:1", "1:1:1:1", "a:b:c", "1:0:1", "-1:1:1", "1.5:1:1", "1: 1:1", "²:1:1"])
def test_a_nonsense_split_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(LidflError, match=r"train:validation:test .* such as 36:9:5"):
        parse_split(text)


@pytest.mark.parametrize(
    ("n", "ratio", "sizes"),
    [
        (100, RATIO, (72, 18, 10)),
        (1150, RATIO, (828, 207, 115)),
        (60, (4, 1, 1), (40, 10, 10)),
        (3, RATIO, (1, 1, 1)),
        (4, RATIO, (2, 1, 1)),
        (10, (1000, 1, 1), (8, 1, 1)),
        (10, (1, 1, 1000), (1, 1, 8)),
        (5, (1, 1, 1), (2, 2, 1)),
    ],
)
def test_split_sizes_follow_the_ratio(n: int, ratio: tuple[int, int, int], sizes: tuple[int, int, int]) -> None:
    assert split_sizes(n, ratio) == sizes


@given(n=st.integers(3, 60), ratio=st.tuples(*[st.integers(1, 50)] * 3))
def test_no_other_sizes_are_closer_to_the_ratio(n: int, ratio: tuple[int, int, int]) -> None:
    every = [(a, b, n - a - b) for a in range(1, n - 1) for b in range(1, n - a)]
    exact = np.array(ratio) * n / sum(ratio)
    sizes = split_sizes(n, ratio)
    assert sizes in every
    closest = min(np.sum((np.array(other) - exact) ** 2) for other in every)
    assert np.sum((np.array(sizes) - exact) ** 2) == pytest.approx(closest)


def test_two_images_cannot_be_split_three_ways() -> None:
    with pytest.raises(LidflError, match="at least 3"):
        split_sizes(2, RATIO)


# Clients.


def test_each_client_keeps_its_images_and_each_image_its_label(data: FederatedData) -> None:
    clients = dealt(50, 3, 47)
    splits = (data.train, data.validation, data.test)
    for client, images in enumerate(clients):
        held: list[int] = []
        for shards in splits:
            rows, labels = shards.of(client)
            found = numbers(Shards(rows, labels, np.array([0, len(rows)])), data.statistics)
            assert labels.tolist() == [number % 7 for number in found]
            held += found
        assert sorted(held) == sorted(images.tolist())


def test_splits_are_ragged_and_of_the_asked_sizes(data: FederatedData) -> None:
    assert data.train.sizes.tolist() == [36, 1, 34]
    assert data.validation.sizes.tolist() == [9, 1, 8]
    assert data.test.sizes.tolist() == [5, 1, 5]
    assert data.train.offsets.tolist() == [0, 36, 37, 71]
    assert data.num_clients == 3
    assert data.num_classes == 7
    assert data.image_shape == (2, 3, 4)


def test_a_clients_part_is_a_view(data: FederatedData) -> None:
    images, labels = data.train.of(2)
    assert images.data_ptr() == data.train.images[37:].data_ptr()
    assert labels.data_ptr() == data.train.labels[37:].data_ptr()


def test_images_are_shuffled_before_they_are_cut(data: FederatedData) -> None:
    again = federate(byte_data(), dealt(50, 3, 47), RATIO, default_rng(0))
    other = federate(byte_data(), dealt(50, 3, 47), RATIO, default_rng(1))
    assert torch.equal(data.train.images, again.train.images)
    assert numbers(data.test, data.statistics) != numbers(other.test, other.statistics)


def test_shards_move_to_a_device(data: FederatedData) -> None:
    moved = data.train.to("meta")
    assert (moved.images.device.type, moved.labels.device.type) == ("meta", "meta")
    assert moved.offsets is data.train.offsets


def test_the_data_set_is_left_as_it_was() -> None:
    source, clients = byte_data(), dealt(50, 50)
    federate(source, clients, RATIO, default_rng(0))
    assert (source.images == byte_data().images).all()
    assert all((now == then).all() for now, then in zip(clients, dealt(50, 50), strict=True))


# Standardisation.


@pytest.mark.parametrize("standardise", ["pixel", "channel"])
@pytest.mark.parametrize("count", [100, 250])
@pytest.mark.parametrize("chunk", [7, 2048])
def test_statistics_are_those_of_the_scaled_training_images(
    standardise: Literal["pixel", "channel"], count: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lidfl.data.federated.CHUNK", chunk)
    source = byte_data(count, standardise)
    data = federate(source, dealt(count - 40, 40), RATIO, default_rng(0))
    train = numbers(data.train, data.statistics)
    scaled = source.images[train] / 255
    axes = 0 if standardise == "pixel" else (0, 2, 3)
    mean, std = (np.expand_dims(f(scaled, axis=axes, keepdims=True)[0], 0) for f in (np.mean, np.std))
    np.testing.assert_allclose(data.statistics.mean, mean[0], rtol=1e-6)
    np.testing.assert_allclose(data.statistics.std, std[0], rtol=1e-6)
    np.testing.assert_allclose(data.train.images, (scaled - mean) / std, atol=1e-5)
    held = numbers(data.test, data.statistics)
    np.testing.assert_allclose(data.test.images, (source.images[held] / 255 - mean) / std, atol=1e-5)
    assert data.train.images.dtype == torch.float32


@pytest.mark.parametrize("standardise", ["pixel", "channel"])
@pytest.mark.parametrize(("value", "kind"), [(128, "u1"), (0.1, "f4"), (12345.678, "f4")])
def test_what_never_changes_becomes_zero(
    value: float, kind: Literal["u1", "f4"], standardise: Literal["pixel", "channel"]
) -> None:
    images: Images = np.full((999, 1, 2, 2), value).astype(kind)
    statistics = measure(images, np.arange(999), standardise)
    assert (statistics.std == 1).all()
    assert statistics.apply(images).abs().max() < 1e-6


def test_a_small_spread_on_a_large_mean_is_measured_exactly() -> None:
    images = (10_000 + default_rng(0).normal(size=(5000, 1, 1, 3))).astype(np.float32)
    statistics = measure(images, np.arange(5000), "pixel")
    np.testing.assert_allclose(statistics.std[0, 0], images.astype(np.float64).std(axis=0)[0, 0], rtol=1e-6)


def test_given_statistics_are_used_instead() -> None:
    given_statistics = Statistics(torch.full((2, 1, 1), 0.5), torch.full((2, 1, 1), 0.25))
    source = byte_data()
    data = federate(source, dealt(60, 40), RATIO, default_rng(0), statistics=given_statistics)
    assert data.statistics is given_statistics
    rows = numbers(data.validation, given_statistics)
    np.testing.assert_allclose(data.validation.images, (source.images[rows] / 255 - 0.5) / 0.25, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 1, 1), (4,), (2, 3, 5)])
def test_statistics_of_other_images_are_refused(shape: tuple[int, ...]) -> None:
    foreign = Statistics(torch.zeros(shape), torch.ones(shape))
    with pytest.raises(LidflError, match="bring matching images"):
        federate(byte_data(), dealt(60, 40), RATIO, default_rng(0), statistics=foreign)


MEMORY_PROBE = """
import resource
import numpy as np
from lidfl.data.base import Dataset, Images
from lidfl.data.federated import federate
rng = np.random.default_rng(0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
images = rng.integers(0, 256, (40_263, 1, 28, 28), dtype=np.uint8)
data = Dataset(images, np.zeros(len(images), dtype=np.int64), 62, "pixel")
federate(data, np.array_split(rng.permutation(len(images)), 35), (36, 9, 5), rng)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs elsewhere")
def test_forty_thousand_images_take_less_than_400_megabytes() -> None:
    probe = subprocess.run([sys.executable, "-c", MEMORY_PROBE], capture_output=True, text=True, check=True)
    assert int(probe.stdout) / 1024 < 400


# Clients that draw from a common pool.


def test_a_client_of_millions_draws_the_same_images_whenever_it_is_asked() -> None:
    data = federate_drawn(byte_data(), 1_000_000, 50, RATIO, seed=7)
    again = federate_drawn(byte_data(), 1_000_000, 50, RATIO, seed=7)
    assert data.num_clients == 1_000_000
    for client in (0, 17, 999_999):
        images, labels = data.train.of(client)
        assert torch.equal(images, again.train.of(client)[0])
        assert labels.tolist() == [
            number % 7 for number in numbers(Shards(images, labels, np.array([0, 36])), data.statistics)
        ]
        assert len(set(data.train.rows(client).tolist())) == 36
    assert data.train.rows(0).tolist() != data.train.rows(1).tolist()


def test_no_image_is_in_two_splits_of_drawing_clients() -> None:
    data = federate_drawn(byte_data(), 5, 50, RATIO, seed=7)
    train, validation, test = (
        set(numbers(split, data.statistics)) for split in (data.train, data.validation, data.test)
    )
    assert len(train) + len(validation) + len(test) == len(byte_data().labels)
    assert not train & validation
    assert not train & test
    assert not validation & test


@pytest.mark.parametrize("drawing", [False, True])
def test_several_clients_rows_come_one_after_the_other(data: FederatedData, drawing: bool) -> None:
    shards = federate_drawn(byte_data(), 3, 50, RATIO, seed=7).train if drawing else data.train
    for clients in ([0, 2], [1], [0, 1, 2]):
        rows, sizes = shards.gather(np.array(clients))
        expected = [shards.rows(client).tolist() for client in clients]
        assert rows.tolist() == [row for part in expected for row in part]
        assert sizes.tolist() == [len(part) for part in expected]
