"""Randomness derived from its place, so that nothing has to be remembered between rounds.

`rng_for(seed, "batch", round_index, client)` gives the same stream in a simulation, in a resumed run and on a
remote machine, in whatever order the streams are drawn.
"""

from hashlib import blake2b

import numpy as np
from numpy.random import Generator


def seed_for(seed: int, *place: str | int) -> int:
    """A 63-bit seed for one place."""
    digest = blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def rng_for(seed: int, *place: str | int) -> Generator:
    """An independent random generator for one place: a purpose, then numbers such as round and client."""
    return np.random.default_rng(seed_for(seed, *place))
