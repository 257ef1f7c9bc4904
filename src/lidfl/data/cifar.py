"""CIFAR-10 and CIFAR-100 in their official binary versions (Krizhevsky 2009)."""

import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lidfl.data.base import (
    DATA_VARIABLE,
    Dataset,
    data_directory,
    dataset,
    draw_rows,
    locate,
    refuse_bomb,
    take_rows,
)
from lidfl.errors import LidflError

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
PIXELS = 3 * 32 * 32
"""Bytes of an image: its red, green and blue planes."""


@dataclass(frozen=True)
class Form:
    """How one of the two is stored."""

    name: str
    archive: str
    folder: str
    batches: tuple[str, ...]
    labels: int
    """Bytes before each image; the last of them is its class."""
    num_classes: int

    @property
    def record(self) -> int:
        """Bytes of an image with its labels."""
        return self.labels + PIXELS


TEN = Form(
    "CIFAR-10",
    "cifar-10-binary.tar.gz",
    "cifar-10-batches-bin",
    (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
    labels=1,
    num_classes=10,
)
HUNDRED = Form(
    "CIFAR-100", "cifar-100-binary.tar.gz", "cifar-100-binary", ("train.bin", "test.bin"), labels=2, num_classes=100
)


@dataset
def cifar10(*, path: str = "", images: int = 50_000, rng: Generator) -> Dataset:
    """CIFAR-10, from cifar-10-binary.tar.gz or its unpacked folder; 50,000 of the 60,000 images by default.

    The training and the test batches are merged, since each client cuts its own splits.
    """
    return _read(TEN, path, images, rng)


@dataset
def cifar100(*, path: str = "", images: int = 50_000, rng: Generator) -> Dataset:
    """CIFAR-100 by its 100 fine classes, from cifar-100-binary.tar.gz or its folder; 50,000 of 60,000 images.

    The training and the test file are merged, since each client cuts its own splits.
    """
    return _read(HUNDRED, path, images, rng)


def _read(form: Form, path: str, images: int, rng: Generator) -> Dataset:
    source = _find(form, path)
    batches = _read_folder(form, source) if source.is_dir() else _read_archive(form, source)
    records = [_records(form, batches, name, source) for name in form.batches]
    rows = draw_rows(sum(map(len, records)), images, rng)
    if len(rows) == 0:
        raise LidflError(f"{source} holds no images; download {form.archive} again from {PAGE}")
    labels = take_rows([part[:, form.labels - 1] for part in records], rows).astype(np.int64)
    if labels.max() >= form.num_classes:
        wrong = f"{source} holds label {labels.max()} and is not {form.name}"
        raise LidflError(f"{wrong}; get {form.archive} from {PAGE}")
    planes = [part[:, form.labels :].reshape(-1, 3, 32, 32) for part in records]
    return Dataset(take_rows(planes, rows), labels, form.num_classes, "channel")


def _find(form: Form, path: str) -> Path:
    """The archive or the folder of batches: what the path names, or what is in the directory it names."""
    place = locate(path) if path else data_directory()
    for choice in (place / form.folder, place / form.archive):
        if choice.exists():
            return choice
    if path and place.exists():
        return place
    raise LidflError(f"no {form.name} in {place}; put {form.archive} from {PAGE} there or set {DATA_VARIABLE}")


def _read_folder(form: Form, folder: Path) -> dict[str, bytes]:
    try:
        return {name: (folder / name).read_bytes() for name in form.batches if (folder / name).is_file()}
    except OSError as error:
        fix = f"check its permissions or get {form.archive} from {PAGE}"
        raise LidflError(f"cannot read {folder}; {fix}") from error


def _read_archive(form: Form, file: Path) -> dict[str, bytes]:
    """The batches in a tar archive, read in memory: no name in the archive ever becomes a path on disk."""
    batches: dict[str, bytes] = {}
    try:
        with tarfile.open(file, "r|*") as archive:
            for member in archive:
                refuse_bomb(member.offset + member.size, file.stat().st_size, file)
                name = PurePosixPath(member.name).name
                if name in form.batches and member.isfile() and member.size <= 50_000 * form.record:
                    content = archive.extractfile(member)
                    batches[name] = content.read() if content else b""
    except (OSError, EOFError, TypeError, ValueError, tarfile.TarError, zlib.error) as error:
        # tarfile lets TypeError and ValueError of its own parsing through on some damaged headers.
        fix = f"download {form.archive} again from {PAGE}"
        raise LidflError(f"{file} is damaged or no tar archive; {fix}") from error
    return batches


def _records(form: Form, batches: dict[str, bytes], name: str, source: Path) -> NDArray[np.uint8]:
    """One batch as rows of labels and pixels."""
    if name not in batches:
        raise LidflError(f"{source} has no {name}; download {form.archive} again from {PAGE}")
    if len(batches[name]) % form.record:
        raise LidflError(f"{name} in {source} is cut short; download {form.archive} again from {PAGE}")
    return np.frombuffer(batches[name], dtype=np.uint8).reshape(-1, form.record)
