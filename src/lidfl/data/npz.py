"""Anyone's own images or feature vectors, from a NumPy .npz file. Nothing is ever unpickled."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from lidfl.data.base import DATA_VARIABLE, Dataset, Images, caution_about_classes, dataset, locate, log, refuse_bomb
from lidfl.errors import LidflError

Archive: TypeAlias = "NpzFile[Any]"

UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    LookupError,
    MemoryError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy and zipfile raise on files that are damaged, or no archives at all."""

OWNERS = ("writers", "clients")
"""Arrays that say whose each image is."""

MAX_CLASSES = 100_000
"""More are a mistake, such as -1 stored as an unsigned number."""


@dataset
def npz(*, path: str) -> Dataset:
    """Your own .npz file: arrays `images` (or `x`) and `labels` (or `y`), and `writers` or `clients`.

    Where `clients` says whose each image is, they are dealt so unless you choose another partition. Images are
    (N, height, width), (N, channels, height, width) or (N, features), of uint8 or floats; feature
    vectors become images of shape (1, 1, features). Labels are integers from 0.
    """
    file = locate(path)
    if not file.exists():
        raise LidflError(f"no file {file}; write npz:path/to/file.npz or set {DATA_VARIABLE} to its directory")
    return read_npz(file)


def read_npz(file: Path) -> Dataset:
    """Read and check an .npz file; every class up to the highest label counts."""
    return dataset_of(_read_arrays(file), file)


def dataset_of(arrays: Mapping[str, NDArray[Any]], source: Path | str) -> Dataset:
    """The data set that arrays make, checked; `source` is what errors call it."""
    images = _checked_images(arrays["images"], source)
    labels = _checked_labels(arrays["labels"], len(images), source)
    owners = {name: _checked_owners(name, arrays[name], len(images), source) for name in OWNERS if name in arrays}
    return Dataset(images, labels, int(labels.max()) + 1, "pixel", **owners)


def count_clients(file: Path) -> int:
    """How many clients an .npz file names; 0 if it names none, or is none."""
    try:
        with file.open("rb") as stream, _archive(stream, file) as archive:
            return len(np.unique(_read_array(archive, "clients", file))) if "clients" in archive.files else 0
    except (OSError, LidflError):
        return 0  # what is wrong is told when the data is loaded


def _read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays `images` and `labels`, under these or their short names, and `writers` if it is there."""
    try:
        # NumPy leaves a file open that it cannot read, so the file is opened here.
        with file.open("rb") as stream, _archive(stream, file) as archive:
            found = archive.files
            names = {
                "images": _name_in(found, "images", "x", file),
                "labels": _name_in(found, "labels", "y", file),
            }
            names |= {name: name for name in OWNERS if name in found}
            ignored = sorted({*found} - {*names.values()})
            if ignored:
                log.warning("%s: arrays that are not used: %s", file, ", ".join(ignored))
            return {key: _read_array(archive, name, file) for key, name in names.items()}
    except OSError as error:
        raise _unreadable(file) from error


def _archive(stream: BinaryIO, file: Path) -> Archive:
    try:
        archive = np.load(stream, allow_pickle=False)
    except UNREADABLE as error:
        raise _unreadable(file) from error
    if not isinstance(archive, NpzFile):
        raise LidflError(f"{file} is a single array; write images and labels into one file with numpy.savez")
    return archive


def _unreadable(file: Path) -> LidflError:
    return LidflError(f"{file} is not a readable .npz file; write it with numpy.savez")


def _name_in(found: list[str], name: str, short: str, file: Path) -> str:
    for candidate in (name, short):
        if candidate in found:
            return candidate
    listed = ", ".join(map(repr, found)) or "nothing"
    raise LidflError(f"{file} has no array '{name}' or '{short}', but {listed}; rename one with numpy.savez")


def _read_array(archive: Archive, name: str, file: Path) -> NDArray[Any]:
    try:
        _refuse_bombs(archive, name, file)
        array = archive[name]
    except UNREADABLE as error:
        reason = "is damaged or holds Python objects; save plain numbers with numpy.savez"
        raise LidflError(f"array '{name}' of {file} {reason}") from error
    if not isinstance(array, np.ndarray):
        raise LidflError(f"'{name}' of {file} is not a NumPy array; write it with numpy.savez")
    return array


def _refuse_bombs(archive: Archive, name: str, file: Path) -> None:
    for member in archive.zip.infolist() if archive.zip else []:
        if member.filename in (name, f"{name}.npy"):
            refuse_bomb(member.file_size, member.compress_size, f"array '{name}' of {file}")


def _checked_images(images: NDArray[Any], file: Path | str) -> Images:
    """Images as (N, channels, height, width), uint8 or finite float32."""
    if images.ndim not in (2, 3, 4):
        wanted = "(N, H, W), (N, C, H, W) or (N, features)"
        raise LidflError(f"images of {file} have shape {images.shape}; reshape them to {wanted}")
    if images.size == 0:
        raise LidflError(f"images of {file} are empty, of shape {images.shape}; save at least one image")
    if images.ndim == 4 and images.shape[1] == images.shape[2] > 4 >= images.shape[3]:
        fix = "move them first with images.transpose(0, 3, 1, 2)"
        raise LidflError(f"images of {file} have shape {images.shape}, channels last; {fix}")
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise LidflError(f"images of {file} are {images.dtype}; convert them to uint8 (0 to 255) or float32")
    if images.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused
            images = images.astype(np.float32, copy=False)
        if not np.isfinite(images).all():
            raise LidflError(f"images of {file} hold NaN, infinite or huge values; remove or clip them")
    if images.ndim == 2:
        return images[:, np.newaxis, np.newaxis]
    return images[:, np.newaxis] if images.ndim == 3 else images


def _checked_labels(labels: NDArray[Any], count: int, file: Path | str) -> NDArray[np.int64]:
    if labels.shape != (count,):
        raise LidflError(f"{file} has {count} images but labels of shape {labels.shape}; save one label per image")
    if labels.dtype.kind not in "iu":
        raise LidflError(f"labels of {file} are {labels.dtype}; convert them to integers from 0")
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= MAX_CLASSES:
        raise LidflError(f"labels of {file} run from {lowest} to {highest}; number the classes from 0")
    caution_about_classes(highest + 1, count, file)
    return labels.astype(np.int64)


def _checked_owners(name: str, owners: NDArray[Any], count: int, file: Path | str) -> NDArray[np.int64]:
    """Writers or clients, given as numbers or as names, numbered from 0 in their order."""
    if owners.shape != (count,):
        raise LidflError(f"{file} has {count} images but {name} of shape {owners.shape}; save one per image")
    if owners.dtype.kind not in "iuUS":
        raise LidflError(f"{name} of {file} are {owners.dtype}; convert them to integers or text")
    return np.unique(owners, return_inverse=True)[1].astype(np.int64)
