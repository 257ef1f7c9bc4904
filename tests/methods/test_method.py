"""A method is one function and a line of preset, whatever it keeps."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import lidfl
from lidfl import Experiment, LidflError, ModelList, RunDirectory
from lidfl.methods.method import METHODS, resolve_method, roomy_list, rounds, shortest_list
from lidfl.protocol import Gathered, Outcome, Record, Round, Rules, Train, propose, valid_updates
from lidfl.types import Client


@pytest.fixture
def clusters() -> Iterator[None]:
    """Three models and no vote: each client trains its favourite, which becomes the mean of its clients."""

    @lidfl.method("clusters", length=lambda _clients, _honest: 3, heeds=["list_size"], proposal="fedavg")
    def clusters_round(
        models: ModelList, round_index: int, clients: Sequence[Client], rng: np.random.Generator, rules: Rules
    ) -> Round:
        offers = dict.fromkeys(clients, tuple(range(len(models))))
        trained, rejected = valid_updates((yield Train(round_index, models, offers)), offers, models)
        gathered = Gathered(round_index, models, trained, clients, rng, rules)
        grown, _ = yield from propose(gathered, rules.proposals)
        idle = {model.parents[0] for model in grown}
        survivors = models.with_new(grown).without(idle)
        return Outcome(survivors, Record(round_index, (), dict.fromkeys(survivors.ids, 0), (), dict(rejected)))

    yield
    del METHODS["clusters"], rounds.functions["clusters"]


@pytest.mark.usefixtures("clusters")
def test_several_models_without_a_vote_are_a_method_of_ten_lines(tmp_path: Path) -> None:
    experiment = Experiment(method="clusters", attack="none", rounds=15, out=str(tmp_path / "run"))
    assert (experiment.list_size, experiment.keeps_list, experiment.method_label) == (3, False, "clusters")
    summary = lidfl.run(experiment)
    assert summary["deployed_accuracy"] > 0.7
    assert len(RunDirectory(experiment.out).final_state().models) == 3
    assert Experiment(method="clusters", list_size=5).list_size == 5
    with pytest.raises(LidflError, match="election goes with method = lidfl; leave it out with clusters"):
        Experiment(method="clusters", election="ranked")


def test_a_name_that_is_taken_is_refused() -> None:
    def mine(*_: object) -> Round:
        raise NotImplementedError

    for name in ("lidfl", "krum"):
        with pytest.raises(TypeError, match=f"method '{name}' exists already; rename yours"):
            lidfl.method(name)(mine)


def test_every_aggregator_is_a_method_that_keeps_one_model() -> None:
    assert resolve_method("gm:iterations=3").aggregate == "gm:iterations=3"
    assert resolve_method("oracle").aggregate == "fedavg"
    with pytest.raises(
        LidflError,
        match="unknown method 'krumm'; choose from lidfl, lidfl-ranked, local, oracle, baffle, basil, ditto",
    ):
        resolve_method("krumm")


def test_lists_are_as_long_as_the_guarantee_demands_or_four_times_that() -> None:
    assert [shortest_list(35, honest) for honest in (21, 14, 7)] == [1, 2, 5]
    assert roomy_list(35, 7) == 20
