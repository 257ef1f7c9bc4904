"""Objects in the place of names: found again in this process, told apart by content, asked for in any other."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import lidfl
from lidfl import Experiment, LidflError
from lidfl.settings.objects import dataset_from
from lidfl.settings.world import load_data
from tests.command import lines_without_times

RNG = np.random.default_rng(3)
Y = RNG.integers(0, 3, 90)
X = (RNG.normal(size=(90, 4)) + 2 * Y[:, None]).astype(np.float32)
FEW: dict[str, Any] = dict(rounds=4, local_steps=2, num_clients=6)


def backwards(honest: torch.Tensor, *, strength: float = 2.0) -> torch.Tensor:
    return -strength * honest.mean(0)


def times(strength: float) -> Any:
    def attack(honest: torch.Tensor) -> torch.Tensor:
        return -strength * honest.mean(0)

    return attack


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, place: int) -> Any:
        return torch.from_numpy(X[place]), int(Y[place])


class Odd(Pairs):
    """A data set that is wrong in one way or another."""

    def __init__(self, item: Any = None, length: Any = 3) -> None:
        self.item, self.length = item, length

    def __len__(self) -> int:
        if self.length is None:
            raise NotImplementedError
        return int(self.length)

    def __getitem__(self, place: int) -> Any:
        return self.item(place)


class Broken(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield X[0], 1
        raise OSError("the disk is gone")


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(X, Y, strict=True))


TENSORS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


@pytest.mark.parametrize(
    "given",
    [
        (X, Y),
        (X.tolist(), Y.tolist()),
        (torch.from_numpy(X), torch.from_numpy(Y)),
        {"x": X, "y": Y},
        {"images": X, "labels": Y},
        TENSORS,
        Subset(TENSORS, range(90)),
        Pairs(),
        Stream(),
    ],
    ids=lambda given: type(given).__name__,
)
def test_however_data_is_handed_over_it_is_the_same(given: Any) -> None:
    data = dataset_from(given)
    np.testing.assert_allclose(data.images, X[:, None, None])
    np.testing.assert_array_equal(data.labels, Y)
    assert (data.num_classes, str(data.images.dtype)) == (3, "float32")


def test_one_data_set_a_client_is_dealt_to_them_as_it_is() -> None:
    parts = [
        (X[:20], Y[:20]),
        TensorDataset(torch.from_numpy(X[20:50]), torch.from_numpy(Y[20:50])),
        (X[50:], Y[50:]),
    ]
    experiment = Experiment(dataset=parts)
    assert (experiment.num_clients, experiment.partition) == (3, "by_client")
    data = load_data(experiment)
    sizes = data.train.sizes + data.validation.sizes + data.test.sizes
    assert sizes.tolist() == [20, 30, 40]
    by_name = Experiment(dataset={"Ann": parts[0], "Bob": parts[1], "Cid": parts[2]})
    assert by_name.dataset.partition("@")[2] == experiment.dataset.partition("@")[2]
    owners = np.repeat([0, 1, 2], [20, 30, 40])
    assert Experiment(dataset=(X, Y, owners)).num_clients == 3


def test_whole_numbers_are_features_and_bytes_are_pixels() -> None:
    assert dataset_from((np.arange(6).reshape(3, 2), [0, 1, 0])).images.dtype == np.float32
    assert dataset_from((np.arange(6, dtype=np.uint8).reshape(3, 2), [0, 1, 0])).images.dtype == np.uint8
    assert dataset_from((X, Y == 1)).num_classes == 2


def test_a_run_with_objects_equals_the_run_with_the_same_under_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "named.npz", x=X, y=Y)
    named = Experiment(
        dataset=f"npz:{tmp_path / 'named.npz'}", attack="ipm:epsilon=2", out=str(tmp_path / "named"), **FEW
    )
    given = Experiment(dataset=(X, Y), attack=times(2.0), out=str(tmp_path / "given"), **FEW)
    lidfl.run(named)
    lidfl.run(given)
    assert lines_without_times(Path(named.out)) == lines_without_times(Path(given.out))


def test_what_has_a_name_goes_by_it() -> None:
    assert Experiment(attack=lidfl.attack.functions["lie"]).attack == "lie"
    assert Experiment(model=nn_of_the_module).model == f"{__name__}:nn_of_the_module"
    assert Experiment(attack=backwards).attack.startswith(f"{__name__}.backwards@")


def nn_of_the_module(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, num_classes))


def test_the_same_content_has_the_same_name_and_other_content_another() -> None:
    def names(**settings: Any) -> set[Any]:
        (setting,) = settings
        return {getattr(Experiment(**{setting: value}), setting) for value in settings[setting]}

    assert len(names(attack=[times(2.0), times(2.0)])) == 1
    assert len(names(attack=[times(2.0), times(3.0), backwards, partial(backwards, strength=3.0)])) == 4
    assert len(names(dataset=[(X, Y), (X.copy(), Y.copy())])) == 1
    assert len(names(dataset=[(X, Y), (X[::-1], Y), (X, (Y + 1) % 3)])) == 3
    torch.manual_seed(0)
    first, second = nn.Linear(4, 3), nn.Linear(4, 3)
    assert len(names(model=[first, first, second])) == 2


def test_a_module_starts_with_the_numbers_it_has_and_is_left_alone(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    before = [p.detach().clone() for p in module.parameters()]
    starts = []
    settings: dict[str, Any] = FEW | dict(learning_rate=1e-30, engine="loop")
    for seed in (1, 2):
        run = lidfl.run(
            Experiment(dataset=(X, Y), model=module, seed=seed, out=str(tmp_path / str(seed)), **settings)
        )
        starts.append(torch.cat([p.flatten() for p in run.modules()[0].parameters()]))
    assert torch.equal(*starts)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    torch.testing.assert_close(starts[0], torch.cat([p.flatten() for p in before]))


def test_resumed_with_the_same_object_it_goes_on_and_otherwise_says_what_it_needs(tmp_path: Path) -> None:
    experiment = Experiment(dataset=(X, Y), attack=times(2.0), out=str(tmp_path / "run"), **FEW)
    lidfl.run(experiment)
    longer = Experiment(dataset=(X, Y), attack=times(2.0), out=experiment.out, **(FEW | dict(rounds=6)))
    assert len(lidfl.run(longer, resume=True).records) == 6
    with pytest.raises(LidflError, match=r"was run with attack = '.*attack@[0-9a-f]{16}', not '.*attack@"):
        lidfl.run(longer.with_settings(attack=times(5.0)), resume=True)
    lidfl.dataset.objects.clear()  # as in another process
    needs = (
        r"is no name but an object that a run was given in Python; go on from there, with Experiment\(dataset=…\)"
    )
    with pytest.raises(LidflError, match=needs):
        Experiment.from_toml(tmp_path / "run" / "experiment.toml")


def test_objects_are_found_and_never_listed() -> None:
    name = Experiment(attack=times(7.0)).attack
    assert name in lidfl.attack
    assert name not in list(lidfl.attack)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (dict(attack=3), "attack must be a name or a function, not 3"),
        (dict(attack=lambda gradients: gradients), "names 'gradients', which it is not given"),
        (dict(attack=times(object())), "holds a object, of which nobody can tell"),  # type: ignore[arg-type]
        (dict(model=lambda hidden: hidden), "takes 'hidden', which it is not given"),
        (dict(model=3), "model must be a name, a torch.nn.Module or a function that makes one, not 3"),
        (dict(dataset=3), "dataset must be a name, (x, y), a torch Dataset"),
        (dict(dataset=[]), "dataset must be a name, (x, y), a torch Dataset"),
        (dict(dataset=["digits"]), "dataset must be a name, (x, y), a torch Dataset"),
        (dict(dataset=(X, Y[:5])), "has 90 images but labels of shape (5,)"),
        (dict(dataset=(X, Y + 0.5)), "labels of the data are float64; convert them to integers from 0"),
        (dict(dataset=([[1], [2, 3]], [0, 1])), "x is no array: its rows differ in length"),
        (dict(dataset=(X.astype(object), Y)), "x is an array of object; make it one of numbers"),
        (dict(dataset=[(X, Y), (X[:, :2], Y)]), "client 1 has float32 of (1, 1, 2), client 0 has"),
        (dict(dataset=TensorDataset(torch.zeros(4, 2))), "must give pairs of an input and its class"),
        (dict(dataset=Odd(lambda place: {}[place])), "item 0 of a torch Dataset cannot be read: KeyError: 0"),
        (dict(dataset=Odd(lambda place: (torch.zeros(place), 0))), "item 0 has (0,), item 1 has (1,)"),
        (dict(dataset=Odd(lambda place: (X[0], "cat"))), "item 0 of a torch Dataset has a str for its class"),
        (dict(dataset=Odd(length=None)), "must have a length, or be an IterableDataset: NotImplementedError"),
        (dict(dataset=Broken()), "a torch Dataset cannot be read: OSError: the disk is gone"),
        (dict(dataset=(["a", "b"], [0, 1])), "x is text; make it an array of numbers"),
        (dict(out=3), "out must be str, not 3"),
    ],
)
def test_what_is_no_data_no_model_and_no_attack_is_refused_in_one_line(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(LidflError) as error:
        Experiment(**settings)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
