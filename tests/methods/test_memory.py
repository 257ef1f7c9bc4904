"""What is kept of clients from round to round: momenta, and sums that Sybils shed by leaving."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from lidfl import Experiment, LidflError, RunDirectory, run
from lidfl.methods.aggregators import aggregator
from lidfl.methods.elections import election
from lidfl.methods.proposals import resolve_proposals
from lidfl.protocol import ModelList, Replies, Request, Rules, Train, Trained, single_round
from lidfl.runs.loop import drive
from tests.twin import Twin, tiny


def play(models: ModelList, steps: dict[int, list[float]], remembers: str, *, new: bool = False) -> ModelList:
    def answer(request: Request) -> Replies:
        assert isinstance(request, Train)
        return [
            (client, Trained(0, torch.tensor(step, dtype=torch.float32), new)) for client, step in steps.items()
        ]

    rules = Rules(resolve_proposals("foolsgold:memory=true"), election.resolve("plurality"), remembers=remembers)
    return drive(single_round(models, 0, range(2), default_rng(0), rules), answer).models


def test_sums_are_kept_of_each_client_and_somebody_new_starts_anew() -> None:
    models = ModelList.initial(torch.zeros(2), 1)
    models = play(models, {0: [1, 2], 1: [5, 0]}, "sum")
    models = play(models, {0: [1, 1]}, "sum")
    assert models.memory is not None
    assert models.memory.tolist() == [[2, 3], [5, 0]]
    models = play(models, {0: [4, 4]}, "sum", new=True)
    assert models.memory is not None
    assert models.memory.tolist() == [[4, 4], [5, 0]]
    assert play(models, {0: [3e38, 1]}, "sum").memory is not None
    huge = play(play(models, {0: [3e38, 1]}, "sum"), {0: [3e38, -3e38]}, "sum").memory
    assert huge is not None
    assert huge.isfinite().all()


def test_foolsgold_with_memory_sees_sybils_that_differ_in_a_round_and_agree_over_many() -> None:
    updates = torch.eye(4)
    history = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]])
    rule = aggregator.resolve("foolsgold:memory=true")
    torch.testing.assert_close(rule(updates, history=None), torch.full((4,), 0.25))
    torch.testing.assert_close(rule(updates, history=history), torch.tensor([0.5, 0.5, 0, 0]))
    forgets = aggregator.resolve("foolsgold")
    torch.testing.assert_close(forgets(updates, history=history), torch.full((4,), 0.25))


def test_sybils_who_leave_and_return_are_forgotten(tmp_path: Path) -> None:
    def memory(churn: int) -> torch.Tensor:
        method = dict(method="foolsgold:memory=true", attack="sign_flip", churn=churn, rounds=5)
        experiment = tiny(**method, out=str(tmp_path / str(churn)))
        run(experiment)
        held = RunDirectory(experiment.out).final_state().models.memory
        assert held is not None
        lengths: torch.Tensor = torch.linalg.vector_norm(held, dim=1)
        return lengths

    bad = Twin(tiny()).byzantine
    good = [client for client in range(7) if client not in bad]
    stayed, left = memory(0), memory(2)
    assert (left[bad] < stayed[bad]).all()
    assert (left[good] > 0.5 * stayed[good]).all()


@pytest.mark.parametrize("attack", ["none", "sign_flip"])
def test_clients_send_running_means_of_their_updates(attack: str, tmp_path: Path) -> None:
    """Beside a plain loop: m ← 0.8 m + 0.2 u for all who are honest, and the mean of what is sent."""
    settings: dict[str, Any] = dict(method="fedavg", attack=attack, rounds=4, model="lr")
    experiment = tiny(**settings, client_momentum=0.8, out=str(tmp_path / "run"))
    run(experiment)
    twin = Twin(tiny(**settings))
    model, running = twin.models[0], {client: np.zeros(len(twin.models[0])) for client in range(7)}
    for round_index in range(4):
        common = np.mean([running[client] for client in twin.honest], axis=0)
        for client in range(7):
            before = running[client] if client in twin.honest else common
            running[client] = 0.8 * before + 0.2 * twin.train(round_index, client, model)
        flips = -1 if attack == "sign_flip" else 1
        sent = [running[client] * (1 if client in twin.honest else flips) for client in range(7)]
        model = model + np.mean(sent, axis=0)
    found = RunDirectory(experiment.out).final_state().models.parameters[0]
    np.testing.assert_allclose(found.numpy(), model, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [dict(method="cwm", client_momentum=0.9), dict(method="foolsgold:memory=true", churn=2)],
    ids=["momentum", "sums"],
)
def test_a_resumed_run_remembers_as_an_uninterrupted_one(settings: dict[str, Any], tmp_path: Path) -> None:
    whole, parts = (tiny(**settings, rounds=6, checkpoint_every=3, out=str(tmp_path / n)) for n in ("a", "b"))
    run(whole)
    run(parts.with_settings(rounds=3))
    run(parts, resume=True)
    one, other = (RunDirectory(e.out).final_state().models for e in (whole, parts))
    assert torch.equal(one.parameters, other.parameters)
    assert one.memory is not None
    assert other.memory is not None
    assert torch.equal(one.memory, other.memory)


def test_momentum_goes_with_a_single_model() -> None:
    for slip, message in (
        (dict(method="lidfl", client_momentum=0.9), "client_momentum goes with an aggregator, such as cwm"),
        (dict(method="cwm", client_momentum=1.0), "client_momentum must be in"),
        (dict(churn=-1), "churn must be 0"),
    ):
        with pytest.raises(LidflError, match=message):
            Experiment.of(slip)
