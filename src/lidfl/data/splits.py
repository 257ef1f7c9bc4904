"""How a client's images are cut into those to train on, to vote with and to be tested on."""

from lidfl.errors import LidflError


def parse_split(text: str) -> tuple[int, int, int]:
    """Read a ratio of training to validation to test images, such as `36:9:5`."""
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise LidflError(f"split '{text}' must be train:validation:test in whole numbers from 1, such as 36:9:5")
    train, validation, test = map(int, parts)
    return train, validation, test


def split_sizes(n: int, ratio: tuple[int, int, int]) -> tuple[int, int, int]:
    """The sizes closest to the ratio, each at least 1, that sum to n; ties favour the earlier split.

    Closest means the least Σ (size - n·part/total)²: split_sizes(100, (36, 9, 5)) is (72, 18, 10).
    """
    if n < 3:
        raise LidflError(f"a client with {n} images cannot be split three ways; give each client at least 3")
    total = sum(ratio)
    # The optimum is next to the exact quota, or up to 2 below it where the others are raised to 1.
    train_sizes, validation_sizes = (_around(n * part // total) for part in ratio[:2])
    choices = [(train, held, n - train - held) for train in train_sizes for held in validation_sizes]

    def distance(sizes: tuple[int, int, int]) -> int:
        return sum((size * total - n * part) ** 2 for size, part in zip(sizes, ratio, strict=True))

    return min(
        (sizes for sizes in choices if sizes[2] >= 1),
        key=lambda sizes: (distance(sizes), -sizes[0], -sizes[1]),
    )


def _around(quota: int) -> range:
    return range(max(1, quota - 2), max(1, quota + 1) + 1)
