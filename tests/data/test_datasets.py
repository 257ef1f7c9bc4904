"""Every source yields upright, labelled images, and every bad file one line that names the fix."""

import gzip
import io
import json
import os
import re
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.typing import NDArray

from lidfl.data import Dataset, data_directory, digits, load_dataset
from lidfl.data.base import draw_rows, take_rows
from lidfl.errors import LidflError
from tests.real_data import SHARED_DATA, needs_cifar10, needs_femnist, needs_leaf


@pytest.fixture(autouse=True)
def empty_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tests away from whatever data this machine has."""
    directory = tmp_path / "data"
    directory.mkdir()
    monkeypatch.setenv("LIDFL_DATA", str(directory))
    return directory


def loaded(spec: str) -> Dataset:
    return load_dataset(spec, default_rng(0))


def refusal(spec: str) -> str:
    """The message of the error that loading raises, which must be one line."""
    with pytest.raises(LidflError) as caught:
        loaded(spec)
    message = str(caught.value)
    assert "\n" not in message
    return message


def a_seven() -> NDArray[np.uint8]:
    """An upright 28x28 seven in ink (0) on paper (255): a bar at the top, a stem down the right."""
    image = np.full((28, 28), 255, dtype=np.uint8)
    image[4:6, 8:20] = 0
    image[6:24, 18:20] = 30
    return image


# The data directory.


def test_lidfl_data_names_the_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIDFL_DATA", "somewhere")
    assert data_directory() == Path("somewhere")


def test_without_the_variable_shared_data_is_used_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LIDFL_DATA")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert data_directory() == Path("data")
    (tmp_path / "shared" / "data").mkdir(parents=True)
    assert data_directory().resolve() == (tmp_path / "shared" / "data").resolve()


@pytest.mark.parametrize(
    ("spec", "page"),
    [
        ("femnist", "https://leaf.cmu.edu"),
        ("femnist", "https://www.nist.gov/itl/products-and-services/emnist-dataset"),
        ("cifar10", "https://www.cs.toronto.edu/~kriz/cifar.html"),
        ("femnist:path=nowhere", "https://leaf.cmu.edu"),
        ("cifar10:path=nowhere", "https://www.cs.toronto.edu/~kriz/cifar.html"),
        ("npz:nowhere.npz", "nowhere.npz"),
    ],
)
def test_missing_data_is_told_where_to_get_it_and_where_to_put_it(
    spec: str, page: str, empty_data_directory: Path
) -> None:
    message = refusal(spec)
    assert page in message
    assert "LIDFL_DATA" in message
    assert "nowhere" in message if "nowhere" in spec else str(empty_data_directory) in message


# Drawing.


def test_drawn_rows_are_distinct_sorted_and_follow_the_seed() -> None:
    rows = draw_rows(1000, 100, default_rng(1))
    assert len(set(rows.tolist())) == 100
    assert (np.diff(rows) > 0).all()
    assert rows.tolist() == draw_rows(1000, 100, default_rng(1)).tolist()
    assert rows.tolist() != draw_rows(1000, 100, default_rng(2)).tolist()


@pytest.mark.parametrize("wanted", [0, 5, 6])
def test_zero_or_too_many_draws_all(wanted: int) -> None:
    assert draw_rows(5, wanted, default_rng(0)).tolist() == [0, 1, 2, 3, 4]


def test_a_negative_number_of_images_is_refused() -> None:
    with pytest.raises(LidflError, match="images must be 0"):
        draw_rows(5, -1, default_rng(0))


def test_rows_are_taken_across_parts_as_if_they_were_joined() -> None:
    whole = np.arange(40, dtype=np.uint8).reshape(10, 4)
    rows = np.array([0, 3, 4, 9])
    assert (take_rows([whole[:4], whole[4:4], whole[4:9], whole[9:]], rows) == whole[rows]).all()


# Digits.


def test_digits_need_no_files() -> None:
    data = loaded("digits")
    assert data.images.shape == (1797, 1, 8, 8)
    assert (data.images.min(), data.images.max()) == (0, 1)
    assert (data.num_classes, data.standardise, data.writers) == (10, "pixel", None)
    assert np.bincount(data.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


# Anyone's .npz.


def saved(file: Path, **arrays: Any) -> str:
    np.savez(file, **arrays)
    return f"npz:{file}"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((4, 5, 6), (4, 1, 5, 6)), ((4, 3, 5, 6), (4, 3, 5, 6)), ((4, 7), (4, 1, 1, 7))],
)
def test_npz_takes_images_and_features(tmp_path: Path, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    images = default_rng(0).random(shape)
    data = loaded(saved(tmp_path / "mine.npz", x=images, y=np.array([0, 2, 1, 2], dtype=np.uint8)))
    assert data.images.shape == expected
    assert data.images.dtype == np.float32
    np.testing.assert_allclose(data.images.ravel(), images.ravel(), rtol=1e-6)
    assert data.labels.tolist() == [0, 2, 1, 2]
    assert (data.num_classes, data.standardise, data.writers) == (3, "pixel", None)


def test_npz_keeps_bytes_and_numbers_the_writers(tmp_path: Path) -> None:
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    data = loaded(saved(tmp_path / "mine.npz", images=images, labels=[0, 1, 0], writers=["bo", "al", "bo"]))
    assert data.images.dtype == np.uint8
    assert data.writers is not None
    assert data.writers.tolist() == [1, 0, 1]


def test_npz_is_found_in_the_data_directory_too(empty_data_directory: Path) -> None:
    saved(empty_data_directory / "mine.npz", x=np.zeros((2, 3)), y=[0, 1])
    assert loaded("npz:mine.npz").num_classes == 2


FINE_X, FINE_Y = np.zeros((3, 2, 2), dtype=np.uint8), np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": FINE_X, "y": FINE_Y}, "no array 'images' or 'x', but 'a', 'y';"),
        ({"x": FINE_X}, "no array 'labels' or 'y', but 'x';"),
        ({"x": FINE_X, "y": FINE_Y[:2]}, "3 images but labels of shape (2,)"),
        ({"x": FINE_X, "y": FINE_Y - 1}, "run from -1 to 1; number the classes from 0"),
        ({"x": FINE_X, "y": FINE_Y.astype(np.uint64) - 1 + 2**63}, "number the classes from 0"),
        ({"x": FINE_X, "y": FINE_Y / 2}, "labels of .* are float64; convert them to integers"),
        ({"x": FINE_X, "y": FINE_Y.astype(object)}, "damaged or holds Python objects"),
        ({"x": np.array([{}, {}, {}]), "y": FINE_Y}, "damaged or holds Python objects"),
        ({"x": FINE_X.astype(np.int64), "y": FINE_Y}, "images of .* are int64; convert them to uint8"),
        ({"x": FINE_X * np.nan, "y": FINE_Y}, "NaN, infinite or huge"),
        ({"x": FINE_X + 1e300, "y": FINE_Y}, "NaN, infinite or huge"),
        ({"x": FINE_X[:0], "y": FINE_Y[:0]}, "are empty"),
        ({"x": FINE_Y, "y": FINE_Y}, "reshape them to"),
        ({"x": np.zeros((3, 8, 8, 1), dtype=np.uint8), "y": FINE_Y}, "channels last; move them first"),
        ({"x": FINE_X, "y": FINE_Y, "writers": FINE_Y[:1]}, "writers of shape (1,)"),
        ({"x": FINE_X, "y": FINE_Y, "writers": FINE_Y / 2}, "writers of .* are float64"),
    ],
)
def test_npz_with_wrong_arrays_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    pattern = message.replace("(", r"\(").replace(")", r"\)")
    assert re.search(pattern, refusal(saved(tmp_path / "bad.npz", **arrays)))


def test_a_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    for name, content in [
        ("empty", b""),
        ("text", b"hello"),
        ("pickle", b"\x80\x04N."),
        ("zip", b"PK\x03\x04abc"),
    ]:
        (tmp_path / name).write_bytes(content)
        assert "is not a readable .npz file" in refusal(f"npz:{tmp_path / name}")
    assert "is not a readable .npz file" in refusal(f"npz:{tmp_path}")
    np.save(tmp_path / "single.npy", FINE_X)
    assert "is a single array" in refusal(f"npz:{tmp_path / 'single.npy'}")


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    np.savez_compressed(
        file, images=default_rng(0).integers(0, 255, (50, 8, 8)).astype(np.uint8), labels=np.arange(50)
    )
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert "is not a readable .npz file" in refusal(f"npz:{file}")
    file.write_bytes(whole[:300] + bytes(200) + whole[500:])
    assert "array 'images'" in refusal(f"npz:{file}")


# FEMNIST.


def test_femnist_reads_npz_and_draws_whole_rows(empty_data_directory: Path) -> None:
    marks = np.arange(50)
    images = np.repeat(marks.astype(np.uint8), 784).reshape(50, 28, 28)
    writers = np.array([f"writer{mark:02}" for mark in marks])
    np.savez(
        empty_data_directory / "femnist_small.npz",
        images=images,
        labels=marks.astype(np.uint8),
        writers=writers,
    )
    data = loaded("femnist:images=20")
    assert data.images.shape == (20, 1, 28, 28)
    assert (data.num_classes, data.standardise) == (62, "pixel")
    assert data.writers is not None
    assert data.labels.tolist() == data.writers.tolist() == data.images[:, 0, 5, 5].tolist()
    assert len(loaded("femnist").labels) == len(loaded("femnist:images=0").labels) == 50


def test_femnist_asks_which_of_several_files_is_meant(empty_data_directory: Path) -> None:
    for name in ("femnist_a.npz", "femnist_b.npz"):
        (empty_data_directory / name).touch()
    assert "femnist_a.npz, femnist_b.npz; choose one with femnist:path=…" in refusal("femnist")


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((3, 32, 32), dtype=np.uint8), FINE_Y, "not 28x28"),
        (np.zeros((3, 28, 28), dtype=np.float32), FINE_Y, "convert them to uint8"),
        (np.zeros((3, 28, 28), dtype=np.uint8), FINE_Y + 60, "labels must be 0 to 61"),
    ],
)
def test_femnist_refuses_an_npz_of_something_else(
    tmp_path: Path, images: NDArray[Any], labels: NDArray[Any], message: str
) -> None:
    np.savez(tmp_path / "other.npz", images=images, labels=labels)
    assert message in refusal(f"femnist:{tmp_path / 'other.npz'}")


@needs_femnist
def test_the_real_femnist_loads_within_two_seconds_of_a_processor() -> None:
    start = time.process_time()  # however busy the machine is
    data = loaded(f"femnist:{SHARED_DATA / 'femnist_5pct.npz'}")
    assert time.process_time() - start < 2
    assert data.images.shape == (40263, 1, 28, 28)
    assert data.writers is not None
    assert len(np.unique(data.writers)) == 708
    assert np.median(data.images) == 255  # most of an image is paper
    # An upright 7 has its bar in the upper half of its ink, an upright L in the lower half.
    ink = 1 - data.images[:, 0] / np.float32(255)
    rows = (ink.sum(axis=2) * np.arange(28)).sum(axis=1) / ink.sum(axis=(1, 2))
    assert rows[data.labels == 7].mean() < 13.5 < rows[data.labels == 10 + 11].mean()


# FEMNIST as LEAF writes it.


def leaf_user(*images: NDArray[np.uint8], labels: list[int]) -> dict[str, Any]:
    return {"x": [(image / 255).ravel().tolist() for image in images], "y": labels}


def write_shard(file: Path, users: dict[str, dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    counts = [len(user["y"]) for user in users.values()]
    file.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": users}))


@pytest.fixture
def leaf_folder(empty_data_directory: Path) -> Path:
    """Two writers; f01 has two training images and a test image, f02 a training image."""
    folder = empty_data_directory / "leaf-femnist"
    seven, blank = a_seven(), np.full((28, 28), 255, dtype=np.uint8)
    train = {"f01": leaf_user(seven, blank, labels=[7, 1]), "f02": leaf_user(seven // 2, labels=[61])}
    write_shard(folder / "train" / "a.json", train)
    write_shard(folder / "test" / "a.json", {"f01": leaf_user(blank, labels=[2])})
    return folder


def test_leaf_json_is_merged_by_writer(leaf_folder: Path) -> None:
    data = loaded("femnist")
    assert (data.images[0, 0] == a_seven()).all()
    assert (data.images[2, 0] == a_seven() // 2).all()
    assert data.labels.tolist() == [7, 1, 61, 2]
    assert data.writers is not None
    assert data.writers.tolist() == [0, 0, 1, 0]


def test_leaf_json_is_read_once_and_again_when_it_changes(leaf_folder: Path) -> None:
    fresh = loaded("femnist")
    assert sorted(file.name for file in leaf_folder.parent.iterdir()) == [
        "leaf-femnist",
        "leaf-femnist.cache.npz",
    ]
    shard = leaf_folder / "test" / "a.json"
    times = shard.stat()
    text = shard.read_text()
    shard.write_text("damaged, but no newer than the copy")
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    cached = loaded("femnist")
    assert (cached.images == fresh.images).all()
    assert cached.labels.tolist() == fresh.labels.tolist()
    assert fresh.writers is not None
    assert cached.writers is not None
    assert cached.writers.tolist() == fresh.writers.tolist()
    shard.write_text(text.replace("[2]", "[9]"))
    later = time.time() + 5
    os.utime(shard, (later, later))
    assert loaded("femnist").labels.tolist() == [7, 1, 61, 9]


def test_a_damaged_leaf_copy_is_made_again(leaf_folder: Path) -> None:
    loaded("femnist")
    copy = leaf_folder.with_name("leaf-femnist.cache.npz")
    whole = copy.read_bytes()
    copy.write_bytes(b"half")
    assert len(loaded("femnist").labels) == 4
    assert len(copy.read_bytes()) == len(whole)


def test_leaf_json_is_read_even_where_no_copy_can_be_written(
    leaf_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full_disk)
    assert len(loaded("femnist").labels) == 4
    assert [file.name for file in leaf_folder.parent.iterdir()] == ["leaf-femnist"]


GOOD_USER = leaf_user(a_seven(), labels=[7])


@pytest.mark.parametrize(
    "shard",
    [
        "{",
        "[]",
        "{}",
        '{"user_data": {"f01": {}}}',
        json.dumps({"user_data": {"f01": {**GOOD_USER, "y": [1, 2]}}}),
        json.dumps({"user_data": {"f01": {**GOOD_USER, "y": ["a"]}}}),
        json.dumps({"user_data": {"f01": {"x": [[0.5] * 783], "y": [1]}}}),
        json.dumps({"user_data": {"f01": {"x": [[0.5] * 784, [0.5]], "y": [1, 2]}}}),
        json.dumps({"user_data": {"f01": {"x": [[1.5] * 784], "y": [1]}}}),
        json.dumps({"user_data": {"f01": {"x": [[float("nan")] * 784], "y": [1]}}}),
    ],
)
def test_damaged_leaf_json_is_refused(leaf_folder: Path, shard: str) -> None:
    (leaf_folder / "train" / "b.json").write_text(shard)
    assert "b.json is damaged or not LEAF's FEMNIST; get it again from https://leaf.cmu.edu" in refusal("femnist")


def test_leaf_json_without_writers_or_with_other_labels_is_refused(empty_data_directory: Path) -> None:
    file = empty_data_directory / "femnist" / "a.json"
    write_shard(file, {})
    assert "names no writers" in refusal("femnist")
    write_shard(file, {"f01": leaf_user(a_seven(), labels=[62])})
    assert "labels must be 0 to 61" in refusal("femnist")


@needs_leaf
def test_a_real_leaf_shard_has_six_writers_and_741_images(empty_data_directory: Path) -> None:
    shutil.copytree(SHARED_DATA / "leaf-femnist", empty_data_directory / "leaf-femnist", copy_function=shutil.copy)
    for data in (loaded("femnist"), loaded("femnist")):  # from JSON, then from its copy
        assert data.images.shape == (741, 1, 28, 28)
        assert data.writers is not None
        assert len(np.unique(data.writers)) == 6
        assert np.median(data.images) == 255


# FEMNIST's images as EMNIST stores them.


def write_idx(file: Path, array: NDArray[np.uint8]) -> None:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    content = header + array.tobytes()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def write_emnist(folder: Path, split: str, images: NDArray[np.uint8], labels: list[int], suffix: str = "") -> None:
    """Write upright images as EMNIST stores them: rows and columns swapped, 255 for ink."""
    stored = np.stack([255 - image.T for image in images])
    write_idx(folder / f"emnist-byclass-{split}-images-idx3-ubyte{suffix}", stored)
    write_idx(folder / f"emnist-byclass-{split}-labels-idx1-ubyte{suffix}", np.array(labels, dtype=np.uint8))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_emnist_becomes_upright_ink_on_paper(empty_data_directory: Path, suffix: str) -> None:
    images = np.stack([a_seven(), a_seven() // 2])
    write_emnist(empty_data_directory, "train", images, [7, 61], suffix)
    data = loaded("femnist")
    assert (data.images[:, 0] == images).all()
    assert type(data.images) is np.ndarray
    assert data.labels.tolist() == [7, 61]
    assert (data.num_classes, data.writers) == (62, None)


def test_emnist_test_files_are_merged_where_they_are_there(empty_data_directory: Path) -> None:
    write_emnist(empty_data_directory, "train", a_seven()[np.newaxis], [7])
    write_emnist(empty_data_directory, "test", a_seven()[np.newaxis] // 2, [3], ".gz")
    data = loaded(f"femnist:{empty_data_directory}")
    assert (data.images[1, 0] == a_seven() // 2).all()
    assert data.labels.tolist() == [7, 3]


def test_damaged_emnist_files_are_refused(empty_data_directory: Path) -> None:
    images = empty_data_directory / "emnist-byclass-train-images-idx3-ubyte"
    labels = empty_data_directory / "emnist-byclass-train-labels-idx1-ubyte"
    write_emnist(empty_data_directory, "train", a_seven()[np.newaxis], [7])
    whole = images.read_bytes()
    for damaged in (whole[:-1], whole[:10], b"\0\0\x0d" + whole[3:], whole + b"\0"):
        images.write_bytes(damaged)
        assert "is cut short or no IDX file; get it again from https://www.nist.gov/" in refusal("femnist")
    images.write_bytes(b"")
    assert "idx3-ubyte is damaged; get it again" in refusal("femnist")
    images.unlink()
    packed = images.with_name(images.name + ".gz")
    packed.write_bytes(gzip.compress(whole)[:-12])
    assert "idx3-ubyte.gz is damaged; get it again" in refusal("femnist")
    write_emnist(empty_data_directory, "train", np.stack([a_seven()] * 2), [7, 7])
    write_idx(labels, np.array([7], dtype=np.uint8))
    assert "has shape (2, 28, 28) for 1 labels" in refusal("femnist")
    labels.unlink()
    assert "put emnist-byclass-train-labels-idx1-ubyte.gz from https://www.nist.gov/" in refusal("femnist")


# CIFAR-10.

CIFAR_FILES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


def cifar_batches() -> dict[str, bytes]:
    """Six batches of two images; image i has label i % 10, red i, green i + 50, blue ends with i + 100."""
    batches = {}
    for number, name in enumerate(CIFAR_FILES):
        records = [
            bytes([i % 10]) + bytes([i]) * 1024 + bytes([i + 50]) * 1024 + bytes(1023) + bytes([i + 100])
            for i in (2 * number, 2 * number + 1)
        ]
        batches[name] = b"".join(records)
    return batches


def write_tar(file: Path, contents: dict[str, bytes]) -> None:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_cifar10_is_the_same_from_archive_and_folder(empty_data_directory: Path) -> None:
    write_tar(
        empty_data_directory / "cifar-10-binary.tar.gz",
        {f"cifar-10-batches-bin/{name}": content for name, content in cifar_batches().items()},
    )
    archived = loaded("cifar10")
    folder = empty_data_directory / "cifar-10-batches-bin"
    folder.mkdir()
    for name, content in cifar_batches().items():
        (folder / name).write_bytes(content)
    for data in (archived, loaded("cifar10"), loaded(f"cifar10:{folder}")):
        assert data.images.shape == (12, 3, 32, 32)
        assert data.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
        assert data.images[7, :, 31, 31].tolist() == [7, 57, 107]
        assert data.images[7, :, 0, 0].tolist() == [7, 57, 0]
        assert (data.num_classes, data.standardise) == (10, "channel")


def test_cifar10_draws_as_many_images_as_asked(empty_data_directory: Path) -> None:
    write_tar(empty_data_directory / "cifar-10-binary.tar.gz", cifar_batches())
    data = loaded("cifar10:images=5")
    assert data.images.shape == (5, 3, 32, 32)
    assert data.labels.tolist() == (data.images[:, 0, 0, 0] % 10).tolist()


def test_an_archive_with_wicked_names_writes_nothing_to_disk(tmp_path: Path, empty_data_directory: Path) -> None:
    wicked = {"../../escape": b"x", str(tmp_path / "absolute"): b"x"}
    write_tar(empty_data_directory / "cifar-10-binary.tar.gz", {**wicked, **cifar_batches()})
    before = sorted(tmp_path.rglob("*"))
    loaded("cifar10")
    assert sorted(tmp_path.rglob("*")) == before


def test_damaged_cifar10_archives_are_refused(empty_data_directory: Path) -> None:
    file = empty_data_directory / "cifar-10-binary.tar.gz"
    write_tar(file, cifar_batches())
    whole = file.read_bytes()
    for damaged in (b"", b"not a tar", whole[: len(whole) // 2], whole[:60] + bytes(40) + whole[100:]):
        file.write_bytes(damaged)
        assert "is damaged or no tar archive; download cifar-10-binary.tar.gz again" in refusal("cifar10")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test_batch.bin", None, "has no test_batch.bin; download"),
        ("data_batch_3.bin", bytes(3000), "data_batch_3.bin in .* is cut short; download"),
        ("data_batch_3.bin", b"\x0a" + bytes(3072), "holds label 10 and is not CIFAR-10"),
    ],
)
def test_an_archive_of_something_else_is_refused(
    empty_data_directory: Path, name: str, content: bytes | None, message: str
) -> None:
    batches = cifar_batches() | ({} if content is None else {name: content})
    if content is None:
        del batches[name]
    write_tar(empty_data_directory / "cifar-10-binary.tar.gz", batches)
    assert re.search(message, refusal("cifar10"))


def test_an_archive_without_images_is_refused(empty_data_directory: Path) -> None:
    write_tar(empty_data_directory / "cifar-10-binary.tar.gz", dict.fromkeys(CIFAR_FILES, b""))
    assert "holds no images" in refusal("cifar10")


@needs_cifar10
def test_the_real_cifar10_has_6000_images_of_each_class() -> None:
    data = loaded(f"cifar10:path={SHARED_DATA / 'cifar-10-binary.tar.gz'},images=0")
    assert data.images.shape == (60000, 3, 32, 32)
    assert np.bincount(data.labels).tolist() == [6000] * 10
    # Published per-channel means of the 50,000 training images: 0.4914, 0.4822, 0.4465.
    means = [data.images[:50000:10, channel].mean() / 255 for channel in range(3)]
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=0.01)


def test_digits_are_the_same_where_scikit_learn_keeps_them_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Straight from its file, or as it hands them over: only the former spares its import."""
    usual = loaded("digits")
    monkeypatch.setattr(digits, "_read", digits._read.__wrapped__)
    monkeypatch.setattr(digits, "FILE", Path("nowhere"))
    again = loaded("digits")
    assert (again.images == usual.images).all()
    assert (again.labels == usual.labels).all()


def test_what_one_run_does_to_its_digits_the_next_one_does_not_see() -> None:
    """They are read once a process."""
    first = loaded("digits")
    first.images[:], first.labels[:] = -1, -1
    second = loaded("digits")
    assert second.images.min() == 0
    assert second.labels.min() == 0
