"""The command line as a newcomer meets it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from lidfl import Experiment, LidflError
from lidfl.cli.federation import FederationUp
from lidfl.cli.run import Run
from lidfl.learning.models import build_model
from tests.command import lidfl, lidfl_here, lidfl_inside, lines_without_times, start

SUMMARY_KEYS = {
    *("test_accuracy", "deployed_accuracy", "per_model_accuracy", "rounds", "seconds", "seconds_per_round"),
    *("list_size", "num_byzantine", "experiment", "version", "commit"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run in `runs/first-2024`."""
    folder = tmp_path_factory.mktemp("newcomer")
    lidfl_inside("run", "--name", "first", "--rounds", 40, "--attack", "omniscient", cwd=folder)
    return folder


def test_a_run_leaves_everything_it_promises(finished: Path) -> None:
    run = finished / "runs" / "first-2024"
    summary = json.loads((run / "summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert 0.8 < summary["test_accuracy"] <= 1
    assert summary["test_accuracy"] == max(summary["per_model_accuracy"].values())
    lines = lines_without_times(run)
    assert [line["round"] for line in lines] == list(range(40))
    for line in lines:
        assert line.keys() >= {"born", "votes", "removed", "rejected", "margin", "loss"}
        assert line["born"][0].keys() == {"model", "parents", "clients", "honest"}
        assert sum(line["votes"].values()) == 20
        assert ("accuracy" in line) == ((line["round"] + 1) % 5 == 0)
    assert {line["born"][0]["honest"] for line in lines} == {True, False}
    with safe_open(run / "models.safetensors", framework="pt") as file:
        assert file.get_tensor("parameters").shape == (2, 650)


def test_without_a_terminal_it_logs_plain_lines(tmp_path: Path) -> None:
    out, _ = lidfl("run", "--rounds", 10, cwd=tmp_path)
    assert "12 of 20 clients Byzantine, attack sign_flip, votes worst" in out
    assert "round 5/10  deployed" in out
    assert "\x1b" not in out


def test_quiet_says_only_the_result(tmp_path: Path) -> None:
    out, _ = lidfl_inside("run", "--rounds", 5, "--quiet", cwd=tmp_path)
    assert out.startswith("honest clients deploy")
    assert len(out.splitlines()) == 1


def test_a_config_file_and_flags_over_it(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text('name = "mine"\nrounds = 50\nattack = "gauss"\n')
    lidfl_inside("run", "--config", "e.toml", "--rounds", 4, "--quiet", cwd=tmp_path)
    written = (tmp_path / "runs" / "mine-2024" / "experiment.toml").read_text()
    assert "rounds = 4\n" in written
    assert 'attack = "gauss"\n' in written


def test_a_recorded_run_under_another_name_or_seed_goes_elsewhere(tmp_path: Path) -> None:
    """It once said that the run was there already: its record names the directory."""
    record = tmp_path / "experiment.toml"
    record.write_text(Experiment(name="first").to_toml())

    def out(**flags: Any) -> str:
        return Experiment.of(Run(config=record, **flags).settings()).out

    assert [out(), out(name="second"), out(seed=7)] == ["runs/first-2024", "runs/second-2024", "runs/first-7"]
    record.write_text(Experiment(name="first", out="elsewhere").to_toml())
    assert out(name="second") == "elsewhere"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--attack", "nonsense"], "lidfl: unknown attack 'nonsense'; choose from"),
        (["run", "--config", "absent.toml"], "lidfl: there is no file absent.toml"),
        (["run", "--config", "broken.toml"], "lidfl: cannot read broken.toml"),
        (["run", "--dataset", "npz:absent.npz"], "absent.npz"),
        (["run", "--num-clients", "1000"], "lidfl: "),
        (["run", "--model", "toy:wrong", "--rounds", "1"], "gives outputs of shape (3,); digits has 10 classes"),
        (["run", "--out", "/dev/null/run"], "/dev/null/run"),
        (["pick", "nowhere", "--client", "0"], "lidfl: nowhere is not a run of lidfl"),
        (["run", "--propose", "all"], "lidfl: --propose is now called --groups"),
        (["run", "--propose=all"], "lidfl: --propose is now called --groups"),
        (
            ["run", "--name", "../../x"],
            "lidfl: name '../../x' is not the name of a folder; to choose a place set --out",
        ),
        (["run", "--name", "a/b"], "lidfl: name 'a/b' is not the name of a folder"),
        (["run", "--device", "cuda"], "lidfl: device 'cuda' cannot be used here"),
    ],
)
def test_bad_input_is_one_clear_line_and_no_traceback(
    tmp_path: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken.toml").write_text("rounds = = 3")
    (tmp_path / "toy.py").write_text(
        "from torch import nn\ndef wrong():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    assert lidfl_here(*arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_users_own_model_and_data_run_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    images = (rng.normal(size=(400, 6, 6)) + 3 * labels[:, None, None]).astype(np.float32)
    np.savez(tmp_path / "mine.npz", x=images, y=labels)
    (tmp_path / "own_net.py").write_text(
        "from torch import nn\n"
        "def net(image_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), nn.Dropout(0.1), nn.Linear(36, num_classes))\n"
    )
    settings = ["--dataset", "npz:mine.npz", "--model", "own_net:net", "--num-clients", 10, "--rounds", 30]
    out, _ = lidfl_inside("run", *settings, "--quiet", cwd=tmp_path)
    assert float(out.split()[3]) > 0.8


def test_list_shows_every_kind_with_options(tmp_path: Path) -> None:
    out, _ = lidfl_inside("list", cwd=tmp_path)
    for word in ("femnist", "dirichlet", "cnn", "rknn", "iterations=1", "z=20.0", "coordinated", "plurality"):
        assert word in out


SLOW = {"torch", "sklearn", "altair", "vl_convert", "joblib", "flwr", "scipy.stats"}


QUICK = [
    "--help",
    "run --help",
    "rnu",
    "run --atack lie",
    "run --attack lye",
    "run --method krumm",
    "run --propose all",
    "table nowhere",
    "report nowhere",
    "pick nowhere --client 0",
    "sweep nowhere.toml",
    "reproduce nothing",
    "plan --clients 35",
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is slow and loaded after each of them, in one process: what one loads shows from there on."""
    code = "import json, sys\nfrom lidfl.cli.main import main\n"
    code += f"for words in {QUICK!r}:\n    sys.argv = ['lidfl', *words.split()]\n    try: main()\n"
    code += f"    except SystemExit: pass\n    print(json.dumps([words, sorted({SLOW!r} & sys.modules.keys())]))"
    folder = tmp_path_factory.mktemp("quick")
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


@pytest.mark.parametrize("words", QUICK)
def test_help_and_slips_do_not_wait_for_what_takes_seconds_to_load(
    loaded: dict[str, list[str]], words: str
) -> None:
    assert loaded[words] == []


def test_pick_writes_a_model_that_loads_into_a_plain_module(finished: Path) -> None:
    out, _ = lidfl_inside("pick", "runs/first-2024", "--client", 3, "--out", "mine.safetensors", cwd=finished)
    assert out.count("chosen") == 1
    module = build_model("lr", (1, 8, 8), 10, seed=0)
    module.load_state_dict(load_file(finished / "mine.safetensors"))
    with safe_open(finished / "mine.safetensors", framework="pt") as file:
        assert file.metadata()["model"] == "lr"
    chosen = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    with safe_open(finished / "runs" / "first-2024" / "models.safetensors", framework="pt") as file:
        rows = file.get_tensor("parameters")
    assert any(torch.equal(chosen, row) for row in rows)


def test_pick_judges_by_the_clients_own_data(finished: Path) -> None:
    """On data whose labels are all wrong, the model that fits it best is another one."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    np.savez(finished / "own.npz", x=(digits.images / 16).astype(np.float32), y=digits.target)
    out, _ = lidfl_inside("pick", "runs/first-2024", "--dataset", "npz:own.npz", cwd=finished)
    row = next(line for line in out.splitlines() if "chosen" in line)
    assert float(row.split("│")[3]) > 0.8


def test_the_demo_shows_fedavg_collapse_and_lidfl_stand(tmp_path: Path) -> None:
    out, _ = lidfl_inside("demo", cwd=tmp_path)
    accuracy = {}
    for line in out.splitlines():
        cells = [cell.strip() for cell in line.split("│")]
        if len(cells) > 2 and cells[1] in ("fedavg", "lidfl"):
            accuracy[cells[1]] = float(cells[2])
            assert (tmp_path / cells[5] / "summary.json").exists()
    assert accuracy["fedavg"] < 0.2
    assert accuracy["lidfl"] > 0.85
    assert out.splitlines()[-1] == "report: runs/demo.html"
    page = (tmp_path / "runs" / "demo.html").read_text()
    assert "Lineage of the list: demo-lidfl" in page


def test_without_flower_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(LidflError, match=r"pip install 'lidfl\[flower\]'"):
        FederationUp(action="up")()


def test_ctrl_c_while_modules_are_loaded_ends_without_a_word(tmp_path: Path) -> None:
    """Most of the first second goes into imports; the entry of the command waits for Ctrl-C from the start."""
    code = "import sys, lidfl.__main__ as entry\n"
    code += "class Interrupted:\n    def find_spec(self, name, *_):\n"
    code += "        if name == 'tyro': raise KeyboardInterrupt\n"
    code += "sys.meta_path.insert(0, Interrupted())\nentry.main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_reader_who_has_read_enough_is_no_error(tmp_path: Path) -> None:
    process = start("list", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) in (1, 141)  # rich's way, or a shell's
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
