"""CIFAR-10 in its official binary version (Krizhevsky 2009)."""

import tarfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.data.base import DATA_VARIABLE, Dataset, data_directory, dataset, draw_rows, locate, take_rows
from lidfl.errors import LidflError

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
NUM_CLASSES = 10
RECORD = 1 + 3 * 32 * 32
"""Bytes per image: its label, then its red, green and blue planes."""
MAX_BATCH = 10_000 * RECORD


@dataset
def cifar10(*, path: str = "", images: int = 50_000, rng: Generator) -> Dataset:
    """CIFAR-10, from cifar-10-binary.tar.gz or its unpacked folder; 50,000 of the 60,000 images by default.

    The training and the test batches are merged, since each client cuts its own splits.
    """
    source = _find(path)
    batches = _read_folder(source) if source.is_dir() else _read_archive(source)
    records = [_records(batches, name, source) for name in BATCHES]
    rows = draw_rows(sum(map(len, records)), images, rng)
    if len(rows) == 0:
        raise LidflError(f"{source} holds no images; download {ARCHIVE} again from {PAGE}")
    labels = take_rows([part[:, 0] for part in records], rows).astype(np.int64)
    if labels.max() >= NUM_CLASSES:
        raise LidflError(f"{source} holds label {labels.max()} and is not CIFAR-10; get {ARCHIVE} from {PAGE}")
    planes = [part[:, 1:].reshape(-1, 3, 32, 32) for part in records]
    return Dataset(take_rows(planes, rows), labels, NUM_CLASSES, "channel")


def _find(path: str) -> Path:
    """The archive or the folder of batches: what the path names, or what is in the directory it names."""
    place = locate(path) if path else data_directory()
    for choice in (place / FOLDER, place / ARCHIVE):
        if choice.exists():
            return choice
    if path and place.exists():
        return place
    raise LidflError(f"no CIFAR-10 in {place}; put {ARCHIVE} from {PAGE} there or set {DATA_VARIABLE}")


def _read_folder(folder: Path) -> dict[str, bytes]:
    try:
        return {name: (folder / name).read_bytes() for name in BATCHES if (folder / name).is_file()}
    except OSError as error:
        raise LidflError(f"cannot read {folder}; check its permissions or get {ARCHIVE} from {PAGE}") from error


def _read_archive(file: Path) -> dict[str, bytes]:
    """The batches in a tar archive, read in memory: no name in the archive ever becomes a path on disk."""
    batches: dict[str, bytes] = {}
    try:
        with tarfile.open(file, "r|*") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in BATCHES and member.isfile() and member.size <= MAX_BATCH:
                    content = archive.extractfile(member)
                    batches[name] = content.read() if content else b""
    except (OSError, EOFError, TypeError, ValueError, tarfile.TarError, zlib.error) as error:
        # tarfile lets TypeError and ValueError of its own parsing through on some damaged headers.
        raise LidflError(f"{file} is damaged or no tar archive; download {ARCHIVE} again from {PAGE}") from error
    return batches


def _records(batches: dict[str, bytes], name: str, source: Path) -> NDArray[np.uint8]:
    """One batch as rows of a label and its pixels."""
    if name not in batches:
        raise LidflError(f"{source} has no {name}; download {ARCHIVE} again from {PAGE}")
    if len(batches[name]) % RECORD:
        raise LidflError(f"{name} in {source} is cut short; download {ARCHIVE} again from {PAGE}")
    return np.frombuffer(batches[name], dtype=np.uint8).reshape(-1, RECORD)
