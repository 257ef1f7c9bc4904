"""What a simulation tells of each client is read back, and a damaged file is one clear line."""

from pathlib import Path

import pytest

from lidfl import Experiment, LidflError, run
from lidfl.runs.clients import CLIENTS, MOST, read_clients


def test_a_simulation_tells_what_each_client_holds_and_deploys(tmp_path: Path) -> None:
    summary = run(Experiment(rounds=2, out=str(tmp_path / "run")))
    told = read_clients(tmp_path / "run")
    assert [client.client for client in told] == list(range(20))
    assert sum(client.byzantine for client in told) == 12
    assert sum(sum(client.labels) for client in told) == 1797, "all digits are dealt"
    deployed = [client.deployed for client in told if client.deployed is not None]
    assert len(deployed) == 8
    assert sum(deployed) / 8 == pytest.approx(summary["deployed_accuracy"])
    assert min(deployed) == summary["deployed_worst"]


def test_of_very_many_clients_no_file_is_written(tmp_path: Path) -> None:
    many = Experiment(num_clients=MOST + 1, partition="drawn:size=20", rounds=1, out=str(tmp_path / "run"))
    run(many)
    assert read_clients(tmp_path / "run") == []


@pytest.mark.parametrize(
    "text", ["", "7", "[7]", '[{"client": 1}]', '[{"client": 0, "labels": 3, "byzantine": false}]']
)
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / CLIENTS).write_text(text)
    with pytest.raises(LidflError, match="does not tell of clients; delete it"):
        read_clients(tmp_path)
