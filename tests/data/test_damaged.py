"""A damaged data file is read, or refused in one line; so is a small one that stands for a disk full of zeros."""

import gzip
import io
import json
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lidfl import LidflError
from lidfl.data import load_dataset
from lidfl.data.base import SMALL_ENOUGH
from tests.mutated import mutations, rewrite

COUNT = 1200
"""Mutated files of each kind."""


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (6, 28, 28), dtype=np.uint8), np.arange(6)
    return dict(images=images[:, ::7, ::7], labels=labels, clients=labels // 3)


def as_npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays())
    return buffer.getvalue()


def as_packed_npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays())
    return buffer.getvalue()


def as_leaf() -> bytes:
    pixels = [[0.5] * 784, [0.25] * 784]
    user = {"x": pixels, "y": [3, 61]}
    return json.dumps({"users": ["a", "b"], "user_data": {"a": user, "b": user}}).encode()


def as_idx() -> bytes:
    return bytes([0, 0, 8, 3, 0, 0, 0, 6, 0, 0, 0, 4, 0, 0, 0, 4]) + bytes(range(96))


def as_csv() -> bytes:
    return b"age,colour,class\n1,red,a\n2.5,blue,b\n3,red,a\n4,green,b\n"


def as_cifar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = 2 * 3073
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return buffer.getvalue()


KINDS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "npz": (as_npz, "data.npz", "npz:data.npz"),
    "packed npz": (as_packed_npz, "data.npz", "npz:data.npz"),
    "LEAF": (as_leaf, "leaf/a.json", "femnist:leaf"),
    "IDX": (as_idx, "idx/train-images-idx3-ubyte", "idx:idx"),
    "IDX.gz": (lambda: gzip.compress(as_idx()), "idx/train-images-idx3-ubyte.gz", "idx:idx"),
    "CSV": (as_csv, "data.csv", "table:data.csv"),
    "CIFAR-10": (as_cifar, "cifar.tar.gz", "cifar10:cifar.tar.gz"),
}
"""How a whole file of each kind is made, where it lies, and what names it."""


def read(spec: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile and NumPy wonder aloud about some of them
        load_dataset(spec, np.random.default_rng(0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_is_read_or_refused_in_one_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, name, spec = KINDS[kind]
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    if spec.startswith("idx"):
        (file.parent / "train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 6, 0, 1, 2, 0, 1, 2]))
    file.write_bytes(make())
    read(spec)  # the whole one is read
    refused = 0
    for number, content in enumerate(mutations(make(), COUNT if kind != "LEAF" else COUNT // 4)):
        rewrite(file, content)
        try:
            read(spec)
        except LidflError as error:
            refused += len(str(error).splitlines()) == 1
        except Exception as error:
            raise AssertionError(f"mutation {number} of {kind} ended in a traceback") from error
    assert refused > COUNT // 20


def npz_with_shape(shape: str) -> bytes:
    """An .npz file whose array of images claims a shape."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (117 - len(header)) + "\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("images.npy", array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "shape", ["(99999999999999999999,)", "(True, 8, 8)", "(-1, 8, 8)", "(1, 8, 8, 99999999999)"]
)
def test_an_npz_that_claims_an_absurd_shape_is_refused(tmp_path: Path, shape: str) -> None:
    (tmp_path / "data.npz").write_bytes(npz_with_shape(shape))
    with pytest.raises(LidflError, match=r"array 'images'|no array 'labels'"):
        read(f"npz:{tmp_path / 'data.npz'}")


@pytest.mark.parametrize("number", ["9" * 401, "-" + "9" * 401, "1" + "0" * 5000])
def test_a_leaf_file_with_an_integer_of_hundreds_of_digits_is_refused(tmp_path: Path, number: str) -> None:
    pixels = ",".join([number] + ["0"] * 783)
    (tmp_path / "a.json").write_text(f'{{"user_data": {{"a": {{"x": [[{pixels}]], "y": [1]}}}}}}')
    with pytest.raises(LidflError, match="is damaged or not LEAF's FEMNIST"):
        read(f"femnist:{tmp_path}")


def test_what_unpacks_to_far_more_than_data_does_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    zeros = bytes(SMALL_ENOUGH + 1024)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("images.npy", zeros)
        archive.writestr("labels.npy", b"")
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(zeros, 1))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(bytes(8))
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz", compresslevel=1) as tar:
        info = tarfile.TarInfo("something-else")
        info.size = len(zeros)
        tar.addfile(info, io.BytesIO(zeros))
    for spec in (f"npz:{tmp_path}/bomb.npz", f"idx:{tmp_path}", f"cifar10:{tmp_path}/bomb.tar.gz"):
        with pytest.raises(LidflError, match=r"would unpack from [\d,]+ bytes to [\d,]+, which no data does"):
            read(spec)
