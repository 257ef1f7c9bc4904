"""FEMNIST: handwritten digits and letters by known writers, in any of the three forms people have it in.

Images are 28x28, upright, 255 for paper and 0 for ink; classes are 0-9, then A-Z, then a-z.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.data.base import DATA_VARIABLE, Dataset, data_directory, dataset, draw_rows, locate, take_rows
from lidfl.data.idx import read_idx
from lidfl.data.npz import read_npz
from lidfl.errors import LidflError

LEAF_PAGE = "https://leaf.cmu.edu"
EMNIST_PAGE = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
NUM_CLASSES = 62
SIDE = 28
CACHE_SUFFIX = ".cache.npz"


@dataclass(frozen=True)
class _Source:
    """All images there are, as parts that may still lie on disk; only the drawn rows are copied."""

    parts: Sequence[NDArray[np.uint8]]
    """Each of shape (n, 28, 28)."""
    labels: NDArray[np.int64]
    writers: NDArray[np.int64] | None
    is_emnist: bool = False
    """Whether the images are transposed, with 255 for ink."""


@dataset
def femnist(*, path: str = "", images: int = 40_263, rng: Generator) -> Dataset:
    """FEMNIST, 62 classes by writer: an .npz file, LEAF's JSON folder, or EMNIST by-class IDX files.

    By default 40,263 images are drawn, the paper's 5 % of 805,263; 0 takes all. EMNIST names no writers.
    """
    place = locate(path) if path else _find()
    source = _read(place)
    if len(source.labels) == 0 or source.labels.min() < 0 or source.labels.max() >= NUM_CLASSES:
        raise LidflError(f"{place} holds no FEMNIST: its labels must be 0 to 61; get it from {LEAF_PAGE}")
    rows = draw_rows(len(source.labels), images, rng)
    chosen = take_rows(source.parts, rows)
    if source.is_emnist:
        chosen = np.ascontiguousarray(255 - chosen.transpose(0, 2, 1))
    writers = None if source.writers is None else source.writers[rows]
    return Dataset(chosen[:, np.newaxis], source.labels[rows], NUM_CLASSES, "pixel", writers)


def _find() -> Path:
    """FEMNIST in the data directory: an .npz file, else a LEAF folder, else the directory of IDX files."""
    directory = data_directory()
    files = [file for file in sorted(directory.glob("femnist*.npz")) if not file.name.endswith(CACHE_SUFFIX)]
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise LidflError(f"{directory} has several FEMNIST files: {names}; choose one with femnist:path=…")
    folders = [directory / name for name in ("leaf-femnist", "femnist") if _json_files(directory / name)]
    for choice in [*files, *folders]:
        return choice
    if _idx_file(directory, "train-images-idx3"):
        return directory
    raise _missing(directory)


def _missing(place: Path) -> LidflError:
    return LidflError(
        f"no FEMNIST in {place}; put femnist.npz, LEAF's folder leaf-femnist ({LEAF_PAGE}) or "
        f"EMNIST's emnist-byclass files ({EMNIST_PAGE}) there or set {DATA_VARIABLE}"
    )


def _read(place: Path) -> _Source:
    """Read whichever form of FEMNIST is at a place."""
    if place.is_file():
        return _read_npz(place)
    if _json_files(place):
        return _read_leaf(place)
    if _idx_file(place, "train-images-idx3"):
        return _read_emnist(place)
    raise _missing(place)


def _read_npz(file: Path) -> _Source:
    data = read_npz(file)
    if data.images.shape[1:] != (1, SIDE, SIDE):
        raise LidflError(f"images of {file} are {data.images.shape[1:]}, not 28x28; use npz:{file} instead")
    if data.images.dtype != np.uint8:
        raise LidflError(f"images of {file} are {data.images.dtype}; convert them to uint8, 255 for paper")
    return _Source([data.images[:, 0].astype(np.uint8, copy=False)], data.labels, data.writers)


# LEAF: folders `train` and `test` of JSON shards.


def _json_files(folder: Path) -> list[Path]:
    """The shards of both splits, or those of the folder itself where it has no splits."""
    splits = [*sorted(folder.glob("train/*.json")), *sorted(folder.glob("test/*.json"))]
    return splits or sorted(folder.glob("*.json"))


def _read_leaf(folder: Path) -> _Source:
    """Read the JSON shards, or the faster copy that an earlier reading left beside the folder."""
    files = _json_files(folder)
    cache = folder.absolute().with_name(folder.absolute().name + CACHE_SUFFIX)
    # A folder's own time tells of files added or removed, which may be old themselves.
    changed = max(place.stat().st_mtime_ns for file in files for place in (file, file.parent))
    if cache.is_file() and cache.stat().st_mtime_ns >= changed:
        with suppress(LidflError):  # a damaged copy is made again
            return _read_npz(cache)
    source = _read_shards(files)
    with suppress(OSError):  # a copy that cannot be written only costs time
        _write_cache(cache, source)
    return source


def _read_shards(files: list[Path]) -> _Source:
    """Merge the shards; a writer's training and test images are one writer's images."""
    parts, labels, writers = [], [], []
    numbers: dict[str, int] = {}
    for file in files:
        for user, pixels, classes in _read_shard(file):
            parts.append(pixels)
            labels.append(classes)
            writers.append(np.full(len(classes), numbers.setdefault(user, len(numbers))))
    if not parts:
        raise LidflError(f"{files[0].parent} names no writers; get FEMNIST from {LEAF_PAGE}")
    return _Source(parts, np.concatenate(labels), np.concatenate(writers))


def _read_shard(file: Path) -> list[tuple[str, NDArray[np.uint8], NDArray[np.int64]]]:
    """Each user of one shard with their images and labels."""
    # Shared floats take a fifth of the memory: a shard has millions of pixels but only 256 different ones.
    parse_float = lru_cache(4096)(float)
    try:
        with file.open(encoding="utf-8") as stream:
            shard = json.load(stream, parse_float=parse_float)
        return [(user, *_user_arrays(data)) for user, data in shard["user_data"].items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise LidflError(f"{file} is damaged or not LEAF's FEMNIST; get it again from {LEAF_PAGE}") from error


def _user_arrays(data: dict[str, Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """One user's x, a list of 784 floats in [0, 1] per image, as bytes; and y."""
    pixels = np.array(data["x"], dtype=np.float32).reshape(-1, SIDE, SIDE)
    labels = np.array(data["y"])
    if labels.shape != (len(pixels),) or (labels.size and labels.dtype.kind != "i"):
        raise ValueError("one integer label per image expected")
    if not ((pixels >= 0) & (pixels <= 1)).all():  # NaN fails too
        raise ValueError("pixels in [0, 1] expected")
    return np.rint(pixels * 255).astype(np.uint8), labels.astype(np.int64)


def _write_cache(cache: Path, source: _Source) -> None:
    """Write the copy whole or not at all, so that a reader never meets half of it."""
    assert source.writers is not None  # LEAF always names them
    images = np.concatenate(source.parts)
    handle, temporary = tempfile.mkstemp(dir=cache.parent, prefix=cache.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, images=images, labels=source.labels, writers=source.writers)
        os.replace(temporary, cache)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# EMNIST by class: IDX files, each a header of big-endian numbers and then bytes.


def _idx_file(folder: Path, kind: str) -> Path | None:
    """The plain or compressed file of one kind, such as `train-labels-idx1`."""
    names = (f"emnist-byclass-{kind}-ubyte", f"emnist-byclass-{kind}-ubyte.gz")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read_emnist(folder: Path) -> _Source:
    """Merge the training files with the test files, where these are there too."""
    splits = [split for split in ("train", "test") if _idx_file(folder, f"{split}-images-idx3")]
    pairs = [_read_emnist_split(folder, split) for split in splits]
    return _Source([images for images, _ in pairs], np.concatenate([labels for _, labels in pairs]), None, True)


def _read_emnist_split(folder: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    image_file, label_file = (
        _idx_file(folder, f"{split}-images-idx3"),
        _idx_file(folder, f"{split}-labels-idx1"),
    )
    if image_file is None or label_file is None:
        name = f"emnist-byclass-{split}-labels-idx1-ubyte.gz"
        raise LidflError(f"no labels for {image_file}; put {name} from {EMNIST_PAGE} beside it")
    images, labels = read_idx(image_file, 3, EMNIST_PAGE), read_idx(label_file, 1, EMNIST_PAGE)
    if images.shape != (len(labels), SIDE, SIDE):
        shape = f"shape {images.shape} for {len(labels)} labels"
        raise LidflError(f"{image_file} has {shape}; get both files from {EMNIST_PAGE}")
    return images, labels.astype(np.int64)
