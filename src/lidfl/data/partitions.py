"""How a data set is dealt to clients: each image goes to exactly one of them, unless they draw from a common pool.

A client needs an image to train on, one to vote with and one to be tested on: never fewer than three.
"""

import heapq
import logging
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.errors import LidflError
from lidfl.registry import Registry

log = logging.getLogger(__name__)

MIN_IMAGES = 3
"""One image for each of a client's three splits."""


@dataclass(frozen=True)
class SharedPool:
    """No image is dealt: every client draws so many of its own, which others may have too."""

    size: int


Shares: TypeAlias = list[NDArray[np.int64]] | SharedPool
"""The rows of each client, or how clients draw theirs."""

CONTEXT = frozenset({"num_clients", "rng", "writers", "clients"})
partition = Registry[Shares]("partition", CONTEXT, given=("labels",))


def deal(
    spec: str,
    labels: NDArray[np.int64],
    writers: NDArray[np.int64] | None,
    num_clients: int,
    rng: Generator,
    clients: NDArray[np.int64] | None = None,
) -> Shares:
    """Deal images to clients as a spec says, such as `dirichlet:0.1`, and check what came of it."""
    if num_clients < 1:
        raise LidflError(f"num_clients must be at least 1, not {num_clients}")
    bound = partition.resolve(spec)
    if clients is not None and "clients" not in bound.wants:
        log.warning("the data says whose each image is; partition '%s' deals them anew", spec)
    shares = bound(labels, num_clients=num_clients, rng=rng, writers=writers, clients=clients)
    if not isinstance(shares, SharedPool):
        _check(spec, shares, num_clients, len(labels))
    return shares


def split_clients(
    spec: str,
    labels: NDArray[np.int64],
    writers: NDArray[np.int64] | None,
    num_clients: int,
    rng: Generator,
) -> list[NDArray[np.int64]]:
    """The same for partitions that give each client images of its own."""
    clients = deal(spec, labels, writers, num_clients, rng)
    if isinstance(clients, SharedPool):
        raise LidflError(f"partition '{spec}' gives no client images of its own; choose another")
    return clients


@partition
def iid(
    labels: NDArray[np.int64],
    *,
    num_clients: int,
    rng: Generator,
    sizes: str = "equal",
    sigma: float = 0.3,
) -> list[NDArray[np.int64]]:
    """Images dealt at random: as many to each client (equal), or lognormal(0, sigma) shares (lognormal).

    With lognormal shares, clients short of three images are topped up at random from the largest clients.
    """
    _refuse_too_many(num_clients, len(labels) // MIN_IMAGES)
    shuffled = rng.permutation(len(labels))
    if sizes == "equal":
        return np.array_split(shuffled, num_clients)
    if sizes != "lognormal":
        raise LidflError(f"unknown sizes '{sizes}'; choose from equal, lognormal")
    if not 0 <= sigma <= 10:
        raise LidflError(f"sigma must be between 0 and 10, not {sigma}")
    shares = rng.lognormal(sigma=sigma, size=num_clients)
    return _top_up(_cut(shuffled, shares / shares.sum()), rng)


@partition
def dirichlet(
    labels: NDArray[np.int64],
    *,
    num_clients: int,
    rng: Generator,
    concentration: float = 0.5,
) -> list[NDArray[np.int64]]:
    """Each class dealt in Dirichlet(concentration) shares: the smaller, the fewer classes a client sees.

    Clients short of three images are topped up at random from the largest clients.
    Hsu et al. 2019, "Measuring the effects of non-identical data distribution", https://arxiv.org/abs/1909.06335
    """
    _check_concentration(concentration)
    _refuse_too_many(num_clients, len(labels) // MIN_IMAGES)
    dealt: list[list[NDArray[np.int64]]] = [[] for _ in range(num_clients)]
    for label in np.unique(labels):
        shares = rng.dirichlet(np.full(num_clients, concentration))
        for hand, images in zip(dealt, _cut(rng.permutation(np.flatnonzero(labels == label)), shares), strict=True):
            hand.append(images)
    return _top_up([np.concatenate(hand) for hand in dealt], rng)


@partition
def shards(
    labels: NDArray[np.int64], *, num_clients: int, rng: Generator, per_client: int = 2
) -> list[NDArray[np.int64]]:
    """Pathological: images sorted by class and cut into shards, of which each client gets `per_client` at random.

    Clients short of three images are topped up. McMahan et al. 2017.
    """
    if per_client < 1:
        raise LidflError(f"per_client must be at least 1, not {per_client}")
    _refuse_too_many(num_clients, len(labels) // MIN_IMAGES)
    pieces = np.array_split(_by_class(labels, rng), num_clients * per_client)
    hands = rng.permutation(len(pieces)).reshape(num_clients, per_client)
    return _top_up([np.concatenate([pieces[piece] for piece in hand]) for hand in hands], rng)


@partition
def similarity(
    labels: NDArray[np.int64], *, num_clients: int, rng: Generator, gamma: float = 0.5
) -> list[NDArray[np.int64]]:
    """A share `gamma` of the images dealt at random, the rest sorted by class and cut: 1 is i.i.d., 0 extreme.

    ByzFL's gamma similarity; after Hsu et al. 2019.
    """
    if not 0 <= gamma <= 1:
        raise LidflError(f"gamma must be between 0 and 1, not {gamma}")
    _refuse_too_many(num_clients, len(labels) // MIN_IMAGES)
    shuffled = rng.permutation(len(labels))
    alike, rest = np.split(shuffled, [int(gamma * len(labels))])
    sorted_rest = rest[np.argsort(labels[rest], kind="stable")]
    # The larger pieces of one part go to the clients with the smaller ones of the other.
    pairs = zip(np.array_split(alike, num_clients), np.array_split(sorted_rest, num_clients)[::-1], strict=True)
    return [np.concatenate(pair) for pair in pairs]


@partition
def quantity(
    labels: NDArray[np.int64], *, num_clients: int, rng: Generator, concentration: float = 0.5
) -> list[NDArray[np.int64]]:
    """Quantity skew: images at random, in Dirichlet(concentration) shares: the smaller, the more unequal.

    Clients short of three images are topped up at random from the largest clients. Li et al. 2022.
    """
    _check_concentration(concentration)
    _refuse_too_many(num_clients, len(labels) // MIN_IMAGES)
    shares = rng.dirichlet(np.full(num_clients, concentration))
    return _top_up(_cut(rng.permutation(len(labels)), shares), rng)


@partition
def by_client(
    labels: NDArray[np.int64], *, num_clients: int, clients: NDArray[np.int64] | None
) -> list[NDArray[np.int64]]:
    """Each image to the client that the data names, as the array `clients` of an .npz file does."""
    if clients is None or len(clients) != len(labels):
        raise LidflError("partition 'by_client' needs data that names clients, such as npz; or choose iid")
    named = int(clients.max()) + 1
    if named != num_clients:
        raise LidflError(f"the data names {named} clients, not {num_clients}; leave num_clients out, or choose iid")
    return _group(clients, num_clients)


@partition
def by_writer(
    labels: NDArray[np.int64],
    *,
    num_clients: int,
    rng: Generator,
    writers: NDArray[np.int64] | None,
) -> list[NDArray[np.int64]]:
    """Whole writers dealt in random order, each to the client with the fewest images so far.

    Writers of only two images, and then of one, come last: so many clients as possible reach three images.
    """
    if writers is None or len(writers) != len(labels):
        raise LidflError("partition 'by_writer' needs a data set that names writers; choose femnist, or iid")
    owners, counts = np.unique(writers, return_inverse=True, return_counts=True)[1:]
    _refuse_too_many(num_clients, _writers_carry(counts))
    order = rng.permutation(len(counts))
    order = order[np.argsort(-np.minimum(counts[order], MIN_IMAGES), kind="stable")]
    loads = [(0, client) for client in range(num_clients)]
    client_of = np.zeros(len(counts), dtype=np.int64)
    for writer in order:
        load, client = loads[0]
        client_of[writer] = client
        heapq.heapreplace(loads, (load + int(counts[writer]), client))
    return _group(client_of[owners], num_clients)


@partition
def drawn(labels: NDArray[np.int64], *, size: int = 300) -> SharedPool:
    """Each client draws `size` images at random when it is asked; clients share them, and may be millions."""
    if not MIN_IMAGES <= size <= len(labels):
        raise LidflError(f"size must be from {MIN_IMAGES} to {len(labels)}, not {size}")
    return SharedPool(size)


def _check_concentration(concentration: float) -> None:
    if not 1e-3 <= concentration <= 1e6:  # outside, the draw loses itself in rounding
        raise LidflError(f"concentration must be between 0.001 and 1000000, not {concentration}")


def _by_class(labels: NDArray[np.int64], rng: Generator) -> NDArray[np.int64]:
    """All rows sorted by class, those of a class in random order."""
    shuffled = rng.permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def _writers_carry(counts: NDArray[np.int64]) -> int:
    """The most clients that can have three images each if writers stay whole.

    A writer of three images makes a client. Then a two and a one do, then two twos or three ones.
    """
    ones, twos, enough = (int(np.sum(np.minimum(counts, MIN_IMAGES) == size)) for size in (1, 2, MIN_IMAGES))
    pairs = min(ones, twos)
    return enough + pairs + (twos - pairs) // 2 + (ones - pairs) // 3


def _group(owners: NDArray[np.int64], num_clients: int) -> list[NDArray[np.int64]]:
    """The rows of each owner, in ascending order."""
    ends = np.cumsum(np.bincount(owners, minlength=num_clients))
    return np.split(np.argsort(owners, kind="stable"), ends[:-1])


def _cut(images: NDArray[np.int64], shares: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Consecutive pieces whose lengths follow `shares`, which sum to 1."""
    ends = np.rint(np.cumsum(shares) * len(images)).astype(np.int64)
    return np.split(images, ends[:-1])


def _top_up(clients: list[NDArray[np.int64]], rng: Generator) -> list[NDArray[np.int64]]:
    """Bring every client to three images with random ones of whoever has most at that moment.

    There are three images per client on average, so whoever has most can spare one while another is short.
    """
    piles = [rng.permutation(images) for images in clients]
    sizes = np.array([len(pile) for pile in piles])
    for short in np.flatnonzero(sizes < MIN_IMAGES):
        while sizes[short] < MIN_IMAGES:
            giver = int(sizes.argmax())
            piles[short] = np.append(piles[short], piles[giver][-1])
            piles[giver] = piles[giver][:-1]
            sizes[short] += 1
            sizes[giver] -= 1
    return piles


def _refuse_too_many(num_clients: int, most: int) -> None:
    if num_clients > most:
        fix = f"ask for at most {most} clients" if most else "bring more data"
        raise LidflError(f"the data cannot give {num_clients} clients {MIN_IMAGES} images each; {fix}")


def _check(spec: str, clients: list[NDArray[np.int64]], num_clients: int, num_images: int) -> None:
    """Hold a partition, which may be a third party's, to what the rest relies on."""
    if len(clients) != num_clients:
        raise LidflError(f"partition '{spec}' made {len(clients)} clients, not {num_clients}; mend the partition")
    smallest = min(len(images) for images in clients)
    if smallest < MIN_IMAGES:
        raise LidflError(
            f"partition '{spec}' left a client {smallest} images of {MIN_IMAGES}; ask for fewer clients"
        )
    dealt = np.concatenate(clients)
    if dealt.min() < 0 or dealt.max() >= num_images or len(np.unique(dealt)) != len(dealt):
        raise LidflError(f"partition '{spec}' dealt an image twice or one that is not there; mend the partition")
