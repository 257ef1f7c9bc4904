"""What a function of the user's own answers is checked where it enters: one line that names the function."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lidfl
from lidfl import Experiment, LidflError, attack
from lidfl.protocol import Proposed
from lidfl.registry import Registry
from lidfl.settings.answers import as_labels, as_updates, described
from lidfl.simulation import simulator
from tests.command import lines_without_times

KINDS: dict[str, Registry[Any]] = {
    "aggregator": lidfl.aggregator,
    "preaggregator": lidfl.preaggregator,
    "proposal": lidfl.proposal,
    "election": lidfl.election,
    "judge": lidfl.judge,
    "deploy": lidfl.deploy,
    "attack": lidfl.attack,
    "vote_attack": lidfl.vote_attack,
}
DIM = 650
"""Parameters of softmax regression on the digits."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place of its own, and registries that forget."""
    monkeypatch.chdir(tmp_path)
    for registry in KINDS.values():
        monkeypatch.setattr(registry, "functions", dict(registry.functions))


def register(kind: str, answer: Any) -> None:
    """A function `mine` of a kind; its answer may itself be a function of what it is given."""
    made: Any = answer if callable(answer) else lambda given: answer

    def mine(updates: Any, num_honest: int = 0) -> Any:
        return made(updates)

    def mine_own(own: Any) -> Any:
        return made(own)

    def mine_judge(outputs: Any, labels: Any) -> Any:
        return made(outputs)

    def mine_gathered(gathered: Any) -> Any:
        return made(gathered)

    def mine_election(ballots: Any, ages: Any, seats: Any) -> Any:
        return made(ages)

    def mine_deploy(models: Any, own: Any) -> Any:
        return made(models)

    def mine_losses(losses: Any) -> Any:
        return made(losses)

    known: dict[str, Any] = dict(
        judge=mine_judge, proposal=mine_gathered, election=mine_election, deploy=mine_deploy
    )
    known |= dict(attack=mine_own, vote_attack=mine_losses)
    function: Any = known.get(kind, mine)
    function.__name__, function.__doc__ = "mine", "Mine."
    KINDS[kind](function)


def played(**settings: Any) -> Any:
    few = dict(rounds=2, local_steps=2, num_clients=6, out="run")
    return simulator.run(Experiment(**{**few, **settings}), overwrite=True)


USES: dict[str, dict[str, Any]] = {
    "aggregator": dict(method="mine"),
    "preaggregator": dict(method="mine|cwm"),
    "proposal": dict(proposal="mine"),
    "election": dict(election="mine"),
    "judge": dict(judge="mine"),
    "deploy": dict(deploy="mine"),
    "attack": dict(attack="mine", method="fedavg"),
    "vote_attack": dict(vote_attack="mine"),
}


@pytest.mark.parametrize(
    ("kind", "answer", "told"),
    [
        ("aggregator", None, "aggregator 'mine' gave None; it must give a tensor of floats of shape (650,)"),
        ("aggregator", lambda u: u[0, :5], "aggregator 'mine' gave a tensor of float32, shape (5,)"),
        ("aggregator", lambda u: u[0].long(), "gave a tensor of int64, shape (650,)"),
        ("aggregator", lambda u: u[0].to(torch.complex64), "gave a tensor of complex64"),
        ("aggregator", lambda u: [np.array([len(u)])], "gave a list of 1; it must give groups as arrays of rows"),
        ("preaggregator", lambda u: u, "pre-aggregator 'mine' gave a tensor of float32, shape (6, 650)"),
        ("preaggregator", np.ones((2, 3)), "it must give an array of weights, a row for each new update and 6"),
        ("proposal", None, "proposal 'mine' gave None; it must give a list of lidfl.protocol.Proposed"),
        ("proposal", lambda g: [Proposed((0,), g.models.parameters[0][:3], ())], "shape (3,); it must give"),
        ("election", None, "election 'mine' gave None; it must give a list of 1 different positions from 0 to 2"),
        ("election", lambda ages: [0, 1], "election 'mine' gave a list of 2"),
        ("judge", lambda o: o.sum(), "judge 'mine' gave a tensor of float32, shape ()"),
        ("judge", lambda o: o, "a number for each image"),
        ("judge", 3.0, "judge 'mine' gave a float; it must give a tensor of shape ("),
        ("deploy", lambda models: models, "deploy rule 'mine' gave a tensor of float32, shape (2, 650)"),
        ("attack", None, "attack 'mine' gave None; it must give floats of shape (3, 650), a row for each attacker"),
        ("attack", "all", "attack 'mine' gave a str"),
        ("attack", lambda own: own[:2], "attack 'mine' gave a tensor of float32, shape (2, 650)"),
        ("attack", lambda own: own[0, 1:], "attack 'mine' gave a tensor of float32, shape (649,)"),
        ("attack", lambda own: own.to(torch.complex64), "attack 'mine' gave a tensor of complex64"),
        ("attack", lambda own: own.long(), "attack 'mine' gave a tensor of int64"),
        ("vote_attack", None, "vote attack 'mine' gave None; it must give a list of 3 ballots"),
        ("vote_attack", lambda losses: [(0.5,)] * len(losses), "each a tuple of ints"),
    ],
)
def test_an_answer_of_the_wrong_kind_is_told_with_the_function_that_gave_it(
    kind: str, answer: Any, told: str
) -> None:
    register(kind, answer)
    with pytest.raises(LidflError) as error:
        played(**USES[kind])
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "answer",
    [lambda own: -own.numpy(), lambda own: -own.numpy().astype(np.float64), lambda own: -own.double()],
    ids=["array", "array of float64", "tensor of float64"],
)
def test_an_attack_may_answer_with_an_array_and_the_run_has_the_same_bits(answer: Any) -> None:
    played(method="fedavg", attack="sign_flip", out="as-usual")
    register("attack", answer)
    played(method="fedavg", attack="mine")
    assert lines_without_times(Path("run")) == lines_without_times(Path("as-usual"))


def test_an_aggregator_that_counts_in_float64_leaves_the_list_as_it_is() -> None:
    register("aggregator", lambda u: u.double().mean(0))
    assert played(method="mine", attack="none")["test_accuracy"] == pytest.approx(
        played(method="fedavg", attack="none")["test_accuracy"], abs=0.02
    )


def test_a_proposal_that_asks_jurors_is_checked_at_the_end() -> None:
    @lidfl.proposal
    def asks(gathered: Any) -> Any:
        """Mine."""
        yield from lidfl.proposal.functions["jurors"](gathered)
        return "nothing"

    with pytest.raises(LidflError, match="proposal 'asks' gave a str"):
        played(proposal="asks")


def test_an_attack_on_data_gives_a_label_for_each_image_and_a_class_that_there_is() -> None:
    labels = torch.tensor([0, 1, 2])
    assert as_labels("mine", np.array([2, 1, 0]), labels, 3).tolist() == [2, 1, 0]
    for answer, told in [
        (labels[:2], r"gave a tensor of int64, shape \(2,\); it must give whole numbers of shape \(3,\)"),
        (labels.float(), "gave a tensor of float32"),
        (labels + 1, "gave labels from 1 to 3; it must give some of 0 … 2"),
        (None, "gave None"),
    ]:
        with pytest.raises(LidflError, match=told):
            as_labels("mine", answer, labels, 3)

    @attack
    def pairs(images: Any, labels: Any) -> Any:
        """Mine."""
        return images[:1], labels

    with pytest.raises(LidflError, match="attack 'pairs' gave a tensor of float32, shape"):
        played(attack="pairs")


def test_one_vector_is_sent_by_all_and_what_fits_keeps_its_bits() -> None:
    start, rows = torch.zeros(3), torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    assert torch.equal(as_updates("mine", rows, 2, start), rows)
    assert torch.equal(as_updates("mine", rows[0], 2, start), rows[[0, 0]])
    assert described(np.zeros((2, 3))) == "an array of float64, shape (2, 3)"
