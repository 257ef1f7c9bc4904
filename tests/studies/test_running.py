"""One run of a sweep, and where runs are sent to."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import pytest
import torch
from joblib.parallel import BACKENDS

from lidfl import Experiment, LidflError, RunDirectory
from lidfl.studies.running import cluster, run_one


@pytest.fixture(autouse=True)
def _as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker may set its threads and its folder; this process goes on."""
    monkeypatch.chdir(tmp_path)
    threads, backends = torch.get_num_threads(), dict(BACKENDS)
    yield
    torch.set_num_threads(threads)
    BACKENDS.clear()
    BACKENDS.update(backends)


def test_a_worker_writes_where_the_sweep_was_started_with_as_many_threads_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    ended = run_one(Experiment(rounds=2, local_steps=1, num_clients=4, out="run"), 2, tmp_path / "there")
    assert ended.error is None
    assert RunDirectory(tmp_path / "there" / "run").summary()["rounds"] == 2
    assert torch.get_num_threads() == 2


def test_a_failure_that_can_be_mended_comes_back_in_a_line_and_a_fault_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mendable = run_one(Experiment(dataset="npz:absent.npz", out="run"), 1)
    assert mendable.error is not None
    assert "absent.npz" in mendable.error
    assert "Traceback" not in mendable.error

    def fault(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("lidfl.studies.running.run", fault)
    ours = run_one(Experiment(out="run"), 1)
    assert ours.error is not None
    assert ours.error.startswith("Traceback")
    assert ours.error.endswith("ZeroDivisionError: ours\n")


class ElsewhereBackend(joblib.parallel.ThreadingBackend):  # type: ignore[misc]
    """Stands for a cluster's workers."""


def used() -> Any:
    return joblib.parallel.get_active_backend()[0]


def test_without_a_cluster_runs_stay_on_this_machine() -> None:
    before = type(used())
    with cluster("local", None):
        assert type(used()) is before


def test_ray_is_where_runs_go_and_is_left_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    ray = SimpleNamespace(init=lambda address, **_: done.append(address), shutdown=lambda: done.append("left"))
    hands = SimpleNamespace(register_ray=lambda: joblib.register_parallel_backend("ray", ElsewhereBackend))
    for name, module in {"ray": ray, "ray.util": SimpleNamespace(), "ray.util.joblib": hands}.items():
        monkeypatch.setitem(sys.modules, name, module)

    def interrupted() -> None:
        with cluster("ray", "ray://head:10001"):
            assert isinstance(used(), ElsewhereBackend)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["ray://head:10001", "left"]
    assert not isinstance(used(), ElsewhereBackend)


def test_dask_is_where_runs_go_and_its_scheduler_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    class Client:
        def __init__(self, address: str | None) -> None:
            done.append(address)

        def __enter__(self) -> None:
            joblib.register_parallel_backend("dask", ElsewhereBackend)

        def __exit__(self, *_: object) -> None:
            done.append("left")

    monkeypatch.setitem(sys.modules, "dask", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "dask.distributed", SimpleNamespace(Client=Client))
    with cluster("dask", "tcp://head:8786"):
        assert isinstance(used(), ElsewhereBackend)
    assert done == ["tcp://head:8786", "left"]


@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_a_cluster_that_is_not_installed_says_what_to_install(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("ray", "dask", "dask.distributed"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LidflError, match=rf"pip install 'lidfl\[{backend}\]'"), cluster(backend, None):
        pass


def test_a_cluster_that_there_is_none_of_is_named_with_those_there_are() -> None:
    with pytest.raises(LidflError, match="unknown backend 'slurm'; choose from local, ray, dask"):
        cluster("slurm", None).__enter__()
