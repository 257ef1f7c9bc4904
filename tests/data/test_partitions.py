"""Every partition deals each image exactly once, and never leaves a client fewer than three."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.typing import NDArray

from lidfl.data.partitions import partition, split_clients
from lidfl.errors import LidflError

SPECS = [
    *sorted({*partition} - {"drawn", "by_client"}),
    "iid:lognormal",
    "iid:sizes=lognormal,sigma=3",
    "dirichlet:0.001",
    "dirichlet:1000",
]


@pytest.fixture
def registered() -> Iterator[None]:
    """Leave the registry as it was."""
    before = dict(partition.functions)
    yield
    partition.functions.clear()
    partition.functions.update(before)


def balanced(num_images: int, num_classes: int = 10) -> NDArray[np.int64]:
    return np.arange(num_images) % num_classes


def sizes_of(clients: list[NDArray[np.int64]]) -> list[int]:
    return [len(images) for images in clients]


@pytest.mark.parametrize("spec", SPECS)
@given(
    num_clients=st.integers(1, 12),
    spare=st.integers(0, 60),
    num_classes=st.integers(1, 7),
    seed=st.integers(0, 2**32),
)
def test_every_image_is_dealt_exactly_once(
    spec: str, num_clients: int, spare: int, num_classes: int, seed: int
) -> None:
    rng = default_rng(seed)
    count = 3 * num_clients + spare
    labels = rng.integers(0, num_classes, count)
    writers = np.sort(np.append(np.repeat(np.arange(num_clients), 3), rng.integers(0, num_clients + 5, spare)))
    clients = split_clients(spec, labels, writers, num_clients, rng)
    assert len(clients) == num_clients
    assert min(sizes_of(clients)) >= 3
    assert np.sort(np.concatenate(clients)).tolist() == list(range(count))
    assert {images.dtype for images in clients} == {np.dtype(np.int64)}


@pytest.mark.parametrize("spec", SPECS)
def test_the_same_seed_deals_the_same_and_another_seed_does_not(spec: str) -> None:
    labels, writers = balanced(400), np.arange(400) // 7

    def deal(seed: int) -> list[list[int]]:
        return [images.tolist() for images in split_clients(spec, labels, writers, 10, default_rng(seed))]

    assert deal(1) == deal(1)
    assert deal(1) != deal(2)


def test_equal_sizes_differ_by_at_most_one() -> None:
    assert sorted(sizes_of(split_clients("iid", balanced(103), None, 10, default_rng(0)))) == [10] * 7 + [11] * 3


def test_lognormal_sizes_have_the_asked_spread() -> None:
    clients = split_clients("iid:sizes=lognormal,sigma=0.3", balanced(400_000), None, 2000, default_rng(0))
    assert np.std(np.log(sizes_of(clients))) == pytest.approx(0.3, rel=0.05)


def test_lognormal_without_spread_is_equal() -> None:
    sizes = sizes_of(split_clients("iid:sizes=lognormal,sigma=0", balanced(100), None, 10, default_rng(0)))
    assert sizes == [10] * 10


def largest_class_share(spec: str) -> float:
    """The mean, over clients, of the share of a client's images that are of its commonest class."""
    labels = balanced(5000)
    clients = split_clients(spec, labels, None, 10, default_rng(0))
    return float(np.mean([np.bincount(labels[images]).max() / len(images) for images in clients]))


def test_a_smaller_concentration_is_more_skewed() -> None:
    shares = [largest_class_share(f"dirichlet:{concentration}") for concentration in (0.01, 0.5, 10, 10_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5
    assert shares[-1] == pytest.approx(0.1, abs=0.01)


def test_writers_stay_whole_and_clients_are_even() -> None:
    writers = default_rng(3).integers(0, 200, 10_000)
    clients = split_clients("by_writer", balanced(10_000), writers, 20, default_rng(0))
    hands = [set(writers[images].tolist()) for images in clients]
    assert sum(map(len, hands)) == len(set.union(*hands)) == 200
    largest_writer = np.bincount(writers).max()
    assert max(sizes_of(clients)) - min(sizes_of(clients)) <= largest_writer


@pytest.mark.parametrize("spec", ["iid", "iid:lognormal", "dirichlet"])
def test_too_many_clients_are_told_how_many_there_can_be(spec: str) -> None:
    with pytest.raises(LidflError, match="at most 33 clients"):
        split_clients(spec, balanced(100), None, 34, default_rng(0))
    assert len(split_clients(spec, balanced(100), None, 33, default_rng(0))) == 33


@pytest.mark.parametrize(
    ("counts", "most"),
    [
        ([3, 4, 5], 3),
        ([1, 2, 3], 2),  # 3 | 2 + 1
        ([2, 2, 2, 1], 2),  # 2 + 1 | 2 + 2
        ([1, 1, 1, 1, 2], 2),  # 2 + 1 | 1 + 1 + 1
        ([9, 1, 1], 1),
        ([2, 2, 2, 2, 2], 2),
        ([3, 2, 2, 1, 1, 1, 1, 1], 4),  # 3 | 2 + 1 | 2 + 1 | 1 + 1 + 1
    ],
)
def test_small_writers_share_clients_as_far_as_they_go(counts: list[int], most: int) -> None:
    writers = np.repeat(np.arange(len(counts)), counts)
    for seed in range(20):
        assert len(split_clients("by_writer", writers, writers, most, default_rng(seed))) == most
    with pytest.raises(LidflError, match=f"at most {most} clients"):
        split_clients("by_writer", writers, writers, most + 1, default_rng(0))


def test_too_little_data_for_anyone_is_refused() -> None:
    with pytest.raises(LidflError, match="bring more data"):
        split_clients("iid", balanced(2), None, 1, default_rng(0))


@pytest.mark.parametrize(
    ("spec", "num_clients", "message"),
    [
        ("by_writer", 5, "needs a data set that names writers"),
        ("iid", 0, "num_clients must be at least 1"),
        ("iid:huge", 5, "unknown sizes 'huge'; choose from equal, lognormal"),
        ("iid:sizes=lognormal,sigma=-1", 5, "sigma must be between 0 and 10"),
        ("iid:sizes=lognormal,sigma=nan", 5, "'sigma' of partition 'iid' must be a finite number"),
        ("dirichlet:0", 5, "concentration must be between"),
        ("dirichlet:nan", 5, "'concentration' of partition 'dirichlet' must be a finite number"),
        ("dirichlet:inf", 5, "'concentration' of partition 'dirichlet' must be a finite number"),
        ("pathological", 5, "unknown partition 'pathological'; choose from by_client, by_writer, dirichlet"),
    ],
)
def test_nonsense_is_refused_with_the_fix(spec: str, num_clients: int, message: str) -> None:
    with pytest.raises(LidflError, match=message):
        split_clients(spec, balanced(100), None, num_clients, default_rng(0))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("dealt", "message"),
    [
        ([[0, 1, 2]], "made 1 clients, not 2"),
        ([[0, 1, 2], [3, 4]], "left a client 2 images of 3"),
        ([[0, 1, 2], [2, 3, 4]], "dealt an image twice"),
        ([[0, 1, 2], [3, 4, 10]], "one that is not there"),
    ],
)
def test_a_third_partys_partition_is_held_to_the_same(dealt: list[list[int]], message: str) -> None:
    @partition
    def theirs(labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Deal as the test says."""
        return [np.array(images) for images in dealt]

    with pytest.raises(LidflError, match=message):
        split_clients("theirs", balanced(10), None, 2, default_rng(0))


def test_what_is_drawn_is_not_dealt() -> None:
    with pytest.raises(LidflError, match="partition 'drawn:3' gives no client images of its own"):
        split_clients("drawn:3", np.zeros(10, dtype=np.int64), None, 2, default_rng(0))
    for size in (2, 11):
        with pytest.raises(LidflError, match=f"size must be from 3 to 10, not {size}"):
            split_clients(f"drawn:{size}", np.zeros(10, dtype=np.int64), None, 2, default_rng(0))
