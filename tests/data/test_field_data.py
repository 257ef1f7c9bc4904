"""What benchmarks use: their partitions, the official files of their data sets, tables, and clients by name."""

import csv
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow
import pytest
import torch
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from pyarrow import parquet

import lidfl
from lidfl import Experiment, LidflError
from lidfl.data.partitions import deal, split_clients
from lidfl.learning.models import build_model
from lidfl.settings.world import load_data
from tests.answers import __file__ as answers_file
from tests.data.test_datasets import loaded, refusal, write_idx, write_tar

# Partitions.


def classes_of(clients: Sequence[NDArray[np.int64]], labels: NDArray[np.int64]) -> list[int]:
    """How many different classes each client has."""
    return [len(np.unique(labels[images])) for images in clients]


class FlowersDraws:
    """A stand-in for the generator: the shares that flwr-datasets draws, and no shuffling."""

    def __init__(self, seed: int) -> None:
        self.rng = default_rng(seed)

    def dirichlet(self, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.rng.dirichlet(alpha)

    def permutation(self, of: NDArray[np.int64]) -> NDArray[np.int64]:
        return of


CASES = json.loads((Path(answers_file).parent / "dirichlet.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['clients']}, {case['alpha']}, {case['seed']}")
def test_dirichlet_deals_as_flwr_datasets_does_but_for_rounding(case: dict[str, Any]) -> None:
    labels = np.repeat(np.arange(4), [300, 250, 400, 350])
    theirs = np.array(case["counts"])
    rng = cast(Generator, FlowersDraws(case["seed"]))
    clients = split_clients(f"dirichlet:{case['alpha']}", labels, None, case["clients"], rng)
    ours = np.array([np.bincount(labels[images], minlength=4) for images in clients])
    topped_up = 3 * int(np.sum(theirs.sum(1) < 3 + 4))  # where rounding leaves a client fewer than three images
    assert np.abs(ours - theirs).max() <= 1 + topped_up
    assert ours.sum(0).tolist() == theirs.sum(0).tolist()


def test_shards_give_a_client_few_classes() -> None:
    labels = np.repeat(np.arange(10), 100)
    clients = split_clients("shards", labels, None, 20, default_rng(0))
    assert all(len(images) == 50 for images in clients)
    assert max(classes_of(clients, labels)) == 2, "40 shards of 25 images, none across two classes"
    one = split_clients("shards:per_client=1", labels, None, 10, default_rng(0))
    assert classes_of(one, labels) == [1] * 10
    with pytest.raises(LidflError, match="per_client must be at least 1"):
        split_clients("shards:0", labels, None, 10, default_rng(0))


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_similarity_deals_a_share_at_random_and_the_rest_by_class(gamma: float) -> None:
    labels = np.repeat(np.arange(10), 100)
    clients = split_clients(f"similarity:{gamma}", labels, None, 10, default_rng(0))
    commonest = [np.bincount(labels[images], minlength=10).max() / len(images) for images in clients]
    # Of each client's 100 images, a share gamma has all classes alike; the rest is nearly one class.
    assert np.mean(commonest) == pytest.approx(1 - 0.9 * gamma, abs=0.1)
    assert {len(images) for images in clients} == {100}
    with pytest.raises(LidflError, match="gamma must be between 0 and 1, not 2"):
        split_clients("similarity:2", labels, None, 10, default_rng(0))


def test_similarity_of_zero_is_byzfls_extreme_case() -> None:
    labels = default_rng(1).integers(0, 5, 203)
    clients = split_clients("similarity:gamma=0", labels, None, 7, default_rng(0))
    dealt = [sorted(labels[images].tolist()) for images in reversed(clients)]
    assert dealt == [piece.tolist() for piece in np.array_split(np.sort(labels), 7)]


def test_quantity_makes_sizes_unequal_and_classes_alike() -> None:
    labels = np.arange(20_000) % 4
    uneven, even = (
        split_clients(f"quantity:{concentration}", labels, None, 20, default_rng(0))
        for concentration in (0.3, 1000)
    )
    spread = [np.std([len(images) for images in clients]) for clients in (uneven, even)]
    assert spread[0] > 10 * spread[1]
    largest = max(uneven, key=len)
    assert np.bincount(labels[largest]) / len(largest) == pytest.approx([0.25] * 4, abs=0.05)


# Clients that a file names.


def write_npz(file: Path, **more: Any) -> None:
    rng = default_rng(0)
    np.savez(file, images=rng.normal(size=(60, 5)).astype(np.float32), labels=np.arange(60) % 3, **more)


def test_an_npz_that_names_clients_is_dealt_so_without_a_flag(tmp_path: Path) -> None:
    owners = np.array(["ann", "bob", "cy"])[default_rng(1).integers(0, 3, 60)]
    write_npz(tmp_path / "mine.npz", clients=owners)
    experiment = Experiment(dataset=f"npz:{tmp_path / 'mine.npz'}", rounds=2, out=str(tmp_path / "run"))
    assert (experiment.partition, experiment.num_clients) == ("by_client", 3)
    data = load_data(experiment)
    held = data.train.sizes + data.validation.sizes + data.test.sizes
    assert held.tolist() == [np.sum(owners == name) for name in ("ann", "bob", "cy")]
    assert lidfl.run(experiment)["rounds"] == 2
    assert Experiment.from_toml(tmp_path / "run" / "experiment.toml") == experiment.with_settings(
        engine=Experiment.from_toml(tmp_path / "run" / "experiment.toml").engine
    )


def test_the_number_of_clients_must_be_the_files(tmp_path: Path) -> None:
    write_npz(tmp_path / "mine.npz", clients=np.arange(60) % 4)
    with pytest.raises(LidflError, match="the data names 4 clients, not 20; leave num_clients out, or choose iid"):
        load_data(Experiment(dataset=f"npz:{tmp_path / 'mine.npz'}", num_clients=20))
    with pytest.raises(LidflError, match="'by_client' needs data that names clients"):
        load_data(Experiment(partition="by_client"))


def test_another_partition_deals_anew_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_npz(tmp_path / "mine.npz", clients=np.arange(60) % 4)
    data = load_data(Experiment(dataset=f"npz:{tmp_path / 'mine.npz'}", partition="iid"))
    assert data.num_clients == 20
    assert caplog.messages == ["the data says whose each image is; partition 'iid' deals them anew"]


def test_arrays_that_are_not_used_and_too_many_classes_are_told_in_a_line_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mine.npz"
    np.savez(file, x=np.zeros((60, 5), np.float32), y=np.arange(60) + 440, weights=np.ones(60), extra=np.ones(2))
    loaded(f"npz:{file}")
    assert caplog.messages == [
        f"{file}: arrays that are not used: extra, weights",
        f"{file} has 500 classes for 60 images: are its labels classes, from 0?",
    ]
    caplog.clear()
    write_npz(tmp_path / "fine.npz", writers=np.arange(60))
    loaded(f"npz:{tmp_path / 'fine.npz'}")
    assert not caplog.messages


def test_reading_a_record_reads_no_file(tmp_path: Path) -> None:
    settings = dict(dataset="npz:nowhere.npz", partition="by_client", num_clients=3)
    assert Experiment.recorded(settings).num_clients == 3
    assert Experiment(dataset="npz:nowhere.npz").partition == "iid", "what is missing is told when data is loaded"


# CIFAR-100.


def cifar100_files() -> dict[str, bytes]:
    """Image i has coarse label i % 20, fine label i, and pixels i."""
    records = [bytes([i % 20, i]) + bytes([i]) * 3072 for i in range(100)]
    return {"train.bin": b"".join(records[:80]), "test.bin": b"".join(records[80:])}


def test_cifar100_has_fine_labels_from_archive_and_folder(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "cifar-100-binary.tar.gz", {f"cifar-100-binary/{k}": v for k, v in cifar100_files().items()}
    )
    archived = loaded(f"cifar100:{tmp_path}")
    (tmp_path / "cifar-100-binary").mkdir()
    for name, content in cifar100_files().items():
        (tmp_path / "cifar-100-binary" / name).write_bytes(content)
    for data in (archived, loaded(f"cifar100:{tmp_path}")):
        assert (data.images.shape, data.num_classes, data.standardise) == ((100, 3, 32, 32), 100, "channel")
        assert data.labels.tolist() == list(range(100))
        assert (data.images[77] == 77).all()


def test_cifar100_is_not_taken_for_cifar10(tmp_path: Path) -> None:
    write_tar(tmp_path / "cifar-10-binary.tar.gz", cifar100_files())
    assert "has no data_batch_1.bin; download cifar-10-binary.tar.gz again" in refusal(f"cifar10:{tmp_path}")
    assert "no CIFAR-100 in" in refusal(f"cifar100:{tmp_path / 'nowhere'}")


# IDX.


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_files_are_merged_and_labels_begin_at_0(tmp_path: Path, suffix: str) -> None:
    images = default_rng(0).integers(0, 256, (12, 5, 4), dtype=np.uint8)
    for split, rows in (("train", slice(8)), ("t10k", slice(8, 12))):
        write_idx(tmp_path / f"{split}-images-idx3-ubyte{suffix}", images[rows])
        write_idx(tmp_path / f"{split}-labels-idx1-ubyte{suffix}", (1 + np.arange(12, dtype=np.uint8) % 3)[rows])
    data = loaded(f"idx:{tmp_path}")
    assert (data.images.shape, data.num_classes) == ((12, 1, 5, 4), 3)
    assert (data.images[:, 0] == np.concatenate([images[8:], images[:8]])).all(), "in the order of their names"
    assert data.labels.tolist() == [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    swapped = loaded(f"idx:path={tmp_path},transposed=true,images=5")
    assert swapped.images.shape == (5, 1, 4, 5)


def test_of_several_data_sets_in_a_folder_one_is_named_by_how_it_begins(tmp_path: Path) -> None:
    for number, name in enumerate(("emnist-letters", "emnist-digits")):
        write_idx(tmp_path / f"{name}-train-images-idx3-ubyte", np.full((3, 2, 2), number, np.uint8))
        write_idx(tmp_path / f"{name}-train-labels-idx1-ubyte.gz", np.arange(3, dtype=np.uint8))
    assert "several data sets: 'emnist-digits', 'emnist-letters'; begin with one" in refusal(f"idx:{tmp_path}")
    assert (loaded(f"idx:{tmp_path / 'emnist-digits'}").images == 1).all()


def test_damaged_idx_files_are_refused(tmp_path: Path) -> None:
    assert "no IDX files at" in refusal(f"idx:{tmp_path}")
    write_idx(tmp_path / "train-images-idx3-ubyte", np.zeros((3, 2, 2), np.uint8))
    assert "no labels for" in refusal(f"idx:{tmp_path}")
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.zeros(2, np.uint8))
    assert "has 3 images for 2 labels; get both files again" in refusal(f"idx:{tmp_path}")
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0")
    assert "is cut short or no IDX file; get it again" in refusal(f"idx:{tmp_path}")
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"abc")[:-3])
    assert "is damaged; get it again" in refusal(f"idx:{tmp_path}")


# Tables.

LINES = [
    ["age", "colour", "size", "kind"],
    ["1", "red", "0.5", "b"],
    ["2", "blue", "1e1", "a"],
    ["3", "red", "-1", "b"],
]


def write_csv(file: Path, lines: Sequence[Sequence[str]] = LINES) -> str:
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(lines)
    return str(file)


def test_a_table_has_numbers_as_they_are_and_a_column_for_each_word(tmp_path: Path) -> None:
    data = loaded(f"table:{write_csv(tmp_path / 'mine.csv')}")
    assert data.images[:, 0, 0].tolist() == [[1, 0, 1, 0.5], [2, 1, 0, 10], [3, 0, 1, -1]]
    assert data.images.dtype == np.float32
    assert (data.labels.tolist(), data.num_classes) == ([1, 0, 1], 2)


def test_any_column_may_be_the_target_and_numbers_keep_their_order(tmp_path: Path) -> None:
    data = loaded(f"table:path={write_csv(tmp_path / 'mine.csv')},target=size")
    assert data.labels.tolist() == [1, 2, 0]
    assert data.images.shape == (3, 1, 1, 5)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no rows; its first line names the columns"),
        ([["a", "b"]], "has no rows"),
        ([["b"], ["1"]], "has no column but 'b'"),
        ([["a", "a"], ["1", "2"]], "names a column twice"),
        ([["a", "b"], ["1", "2", "3"]], "row 1 of"),
        ([["a", "b"], ["1", "x"], ["", "y"]], "column 'a' of"),
        ([["a", "b"], ["nan", "x"]], "holds NaN, infinite or huge values"),
        (
            [["a", "b"], *([f"w{i}", "x"] for i in range(101))],
            "holds 101 different words; leave it out or number it",
        ),
    ],
)
def test_a_table_with_a_fault_is_refused(tmp_path: Path, lines: list[list[str]], message: str) -> None:
    assert message in refusal(f"table:{write_csv(tmp_path / 'mine.csv', lines)}")


@pytest.mark.parametrize(
    ("first", "cautions"),
    [
        (["5.1", "red", "0.4", "a"], 1),
        (["age", "colour", "size", "kind"], 0),
        (["0", "1", "2", "3"], 0),
        (["2024", "colour", "size", "kind"], 0),
    ],
    ids=["data", "names", "counted", "one number"],
)
def test_a_table_whose_first_line_looks_like_data_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: list[str], cautions: int
) -> None:
    loaded(f"table:{write_csv(tmp_path / 'mine.csv', [first, *LINES[1:]])}")
    told = [record.getMessage() for record in caplog.records]
    assert ["its first line looks like data" in line for line in told] == [True] * cautions


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    write_csv(tmp_path / "mine.csv")
    assert "has no column 'sort', but age, colour, size, kind" in refusal(
        f"table:path={tmp_path}/mine.csv,target=sort"
    )
    assert "no file" in refusal(f"table:{tmp_path / 'none.csv'}")
    (tmp_path / "mine.xlsx").write_bytes(b"")
    assert "is neither .csv nor .parquet" in refusal(f"table:{tmp_path / 'mine.xlsx'}")
    (tmp_path / "bytes.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    assert "is not readable as CSV" in refusal(f"table:{tmp_path / 'bytes.csv'}")


def test_parquet_is_read_where_pyarrow_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"age": [1, 2, 3], "colour": ["red", "blue", "red"], "kind": [True, False, True]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "mine.parquet")
    data = loaded(f"table:{tmp_path / 'mine.parquet'}")
    assert data.images[:, 0, 0].tolist() == [[1, 0, 1], [2, 1, 0], [3, 0, 1]]
    assert data.labels.tolist() == [1, 0, 1]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "install pyarrow (pip install pyarrow), or save it as CSV" in refusal(
        f"table:{tmp_path / 'mine.parquet'}"
    )


def test_a_parquet_file_that_is_none_or_holds_a_disk_full_of_zeros_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_bytes(b"PAR1 is not all there is to it PAR1")
    assert "is not a readable Parquet file" in refusal(f"table:{tmp_path / 'no.parquet'}")
    zeros = pyarrow.table({name: np.zeros(10_000_000, dtype=np.int8) for name in "abcdefghijklmno"})
    parquet.write_table(zeros, tmp_path / "bomb.parquet", compression="zstd")
    assert (tmp_path / "bomb.parquet").stat().st_size < 1_000_000
    assert "to 1,200,000,000, which no data does" in refusal(f"table:{tmp_path / 'bomb.parquet'}")


def test_a_table_is_learned_from(tmp_path: Path) -> None:
    rng = default_rng(0)
    points = rng.normal(size=(600, 2))
    lines = [[f"{x:.4f}", f"{y:.4f}", "up" if x + y > 0 else "down"] for x, y in points]
    path = write_csv(tmp_path / "mine.csv", [["x", "y", "way"], *lines])
    honest = Experiment(
        dataset=f"table:{path}", method="fedavg", attack="none", rounds=20, out=str(tmp_path / "run")
    )
    summary = lidfl.run(honest)
    assert summary["deployed_accuracy"] > 0.9


# Models.


def test_resnet20_has_as_many_parameters_as_its_paper_counts() -> None:
    # He et al. 2016, table 6: 0.27 million; GroupNorm has as many as BatchNorm.
    network = build_model("resnet20", (3, 32, 32), 10, seed=1)
    assert sum(parameter.numel() for parameter in network.parameters()) == 269_722
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert not list(network.buffers()), "no statistics that averaging would spoil"
    with pytest.raises(LidflError, match="groups must divide 16, not 3"):
        build_model("resnet20:groups=3", (3, 32, 32), 10, seed=1)


def test_resnet20_judges_each_image_by_itself() -> None:
    network = build_model("resnet20", (1, 8, 8), 4, seed=1)
    images = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    alone = torch.cat([network(image[None]) for image in images])
    torch.testing.assert_close(network(images), alone, rtol=1e-4, atol=1e-5)


def test_mlp_has_the_layers_that_are_named_and_one_of_128_as_ever() -> None:
    usual, named = (build_model(spec, (1, 4, 4), 3, seed=5) for spec in ("mlp", "mlp:hidden=128"))
    torch.manual_seed(5)
    before = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(16, 128), torch.nn.ReLU(), torch.nn.Linear(128, 3)
    )
    for model in (usual, named):
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    deep = build_model("mlp:8x6x4", (1, 4, 4), 3, seed=5)
    assert [tuple(p.shape) for p in deep.parameters() if p.ndim == 2] == [(8, 16), (6, 8), (4, 6), (3, 4)]
    for wrong in ("8x", "0", "8x-2", "many"):
        with pytest.raises(LidflError, match="must be whole numbers joined by x"):
            build_model(f"mlp:{wrong}", (1, 4, 4), 3, seed=5)


def test_drawn_partitions_take_no_clients_from_the_file() -> None:
    assert not isinstance(deal("drawn:5", np.zeros(20, int), None, 4, default_rng(0), None), list)
