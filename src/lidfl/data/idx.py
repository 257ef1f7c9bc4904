"""IDX files, the form of MNIST and its family: a header of big-endian numbers and then bytes."""

import gzip
import math
import re
import zlib
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.data.base import (
    DATA_VARIABLE,
    MOST_RATIO,
    SMALL_ENOUGH,
    Dataset,
    dataset,
    draw_rows,
    locate,
    refuse_bomb,
    take_rows,
)
from lidfl.errors import LidflError

SPLIT = re.compile(r"[-_.]?(train|test|t10k)[-_.]images.*")
"""What of a file's name tells the parts of a data set apart, as in `emnist-letters-train-images-idx3-ubyte`."""


@dataset
def idx(*, path: str, images: int = 0, transposed: bool = False, rng: Generator) -> Dataset:
    """MNIST, Fashion-MNIST, KMNIST, EMNIST, …: IDX files of images and labels, plain or compressed.

    `path` is their folder, or how their names begin where a folder has several: idx:data/emnist-letters. Training
    and test files are merged. The lowest label becomes class 0. EMNIST swaps rows and columns: say transposed=true.
    """
    pairs = [_read_pair(file) for file in _image_files(path)]
    shapes = {pixels.shape[1:] for pixels, _ in pairs}
    if len(shapes) > 1:
        raise LidflError(f"the images of {path} have different sizes; name one data set with idx:path=…")
    labels = np.concatenate([numbers for _, numbers in pairs]).astype(np.int64)
    rows = draw_rows(len(labels), images, rng)
    if len(rows) == 0:
        raise LidflError(f"{path} holds no images; get its files again")
    chosen = take_rows([pixels for pixels, _ in pairs], rows)
    if transposed:
        chosen = np.ascontiguousarray(chosen.transpose(0, 2, 1))
    labels -= labels.min()
    return Dataset(chosen[:, np.newaxis], labels[rows], int(labels.max()) + 1, "pixel")


def _image_files(path: str) -> list[Path]:
    """The files of images of one data set, each once."""
    place = locate(path)
    pattern = "*images*idx3*" if place.is_dir() else f"{place.name}*images*idx3*"
    found = {
        file.name.removesuffix(".gz"): file for file in (place if place.is_dir() else place.parent).glob(pattern)
    }
    if not found:
        wanted = "train-images-idx3-ubyte.gz and its labels"
        raise LidflError(f"no IDX files at {place}; put {wanted} there, or set {DATA_VARIABLE} to their folder")
    names = sorted({SPLIT.sub("", name) for name in found})
    if len(names) > 1:
        raise LidflError(
            f"{place} has several data sets: {', '.join(map(repr, names))}; begin with one in idx:path=…"
        )
    return [found[name] for name in sorted(found)]


def _read_pair(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The images of a file, and the labels of the file beside it."""
    name = file.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    beside = [file.with_name(name + suffix) for suffix in ("", ".gz") if file.with_name(name + suffix).is_file()]
    if not beside:
        raise LidflError(f"no labels for {file}; put {name} beside it")
    images, labels = read_idx(file, 3), read_idx(beside[0], 1)
    if len(images) != len(labels):
        raise LidflError(f"{file} has {len(images)} images for {len(labels)} labels; get both files again")
    return images, labels


def read_idx(file: Path, dimensions: int, page: str = "") -> NDArray[np.uint8]:
    """An IDX file of bytes: 0, 0, 8 (unsigned byte), the number of dimensions, each length, the bytes."""
    again = f"get it again from {page}" if page else "get it again"
    content = _read_bytes(file, again)
    header = 4 + 4 * dimensions
    lengths = [int.from_bytes(content[at : at + 4].tobytes(), "big") for at in range(4, header, 4)]
    is_whole = len(content) == header + math.prod(lengths)
    if not is_whole or content[:4].tolist() != [0, 0, 8, dimensions]:
        raise LidflError(f"{file} is cut short or no IDX file; {again}")
    return content[header:].reshape(lengths)


def _read_bytes(file: Path, again: str) -> NDArray[np.uint8]:
    """A file's bytes, unpacked in memory or, if they are plain, left on disk until they are used."""
    try:
        if file.suffix == ".gz":
            most = max(SMALL_ENOUGH, MOST_RATIO * file.stat().st_size)
            with gzip.open(file) as stream:
                content = stream.read(most + 1)
            refuse_bomb(len(content), file.stat().st_size, file)
            return np.frombuffer(content, dtype=np.uint8)
        return np.asarray(np.memmap(file, dtype=np.uint8, mode="r"))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise LidflError(f"{file} is damaged; {again}") from error
