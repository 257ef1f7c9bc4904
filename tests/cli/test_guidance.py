"""What the command says to those who do not know what to type, and to programs."""

import json
import shlex
import subprocess
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import lidfl as package
from lidfl.cli.main import COMMANDS, command_class, parse
from lidfl.cli.registered import REGISTRIES, table_of
from lidfl.registry import Registry
from tests.command import lidfl_here

PRINTS_NO_TABLE = {"report", "server", "node", "init-flower", "completion"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *words: object, expect: int = 0) -> str:
    """What a command prints, on either stream."""
    capsys.readouterr()
    assert lidfl_here(*words) == expect
    out, err = capsys.readouterr()
    return err if expect else out


def suggested(text: str) -> list[str]:
    """The commands of a guide."""
    return [line.strip().split("  ")[0] for line in text.splitlines() if line.startswith("  lidfl")]


def test_alone_it_shows_commands_that_all_parse(capsys: pytest.CaptureFixture[str]) -> None:
    commands = suggested(said(capsys))
    assert commands[:2] == ["lidfl demo", "lidfl run"]
    for command in commands:
        if command != "lidfl --help":
            parse(shlex.split(command)[1:])


def test_after_a_run_the_guide_leads_to_its_report_and_its_models(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "run", "--name", "mine", "--rounds", 2, "--quiet")
    look, take, *_ = suggested(said(capsys))
    assert look == "lidfl report runs/mine-2024"
    assert "written to" in said(capsys, *shlex.split(take)[1:])


def test_after_a_stop_the_guide_leads_back_into_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "run", "--name", "cut", "--rounds", 2, "--quiet")
    (tmp_path / "runs" / "cut-2024" / "summary.json").unlink()
    resume, *_ = suggested(said(capsys))
    said(capsys, *shlex.split(resume)[1:])
    assert (tmp_path / "runs" / "cut-2024" / "summary.json").exists()


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
@pytest.mark.parametrize("width", [80, 160])
def test_in_a_list_there_is_room_to_say_what_things_are(registry: Registry[Any], width: int) -> None:
    console = Console(width=width, file=StringIO(), color_system=None)
    console.print(table_of(registry, width))
    assert isinstance(console.file, StringIO)
    head = next(line for line in console.file.getvalue().splitlines() if "what it is" in line)
    assert len(head) == width
    assert len(head) - head.index("what it is") >= 0.4 * width


def test_the_help_of_pick_names_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    help_text = said(capsys, "pick", "--help")
    assert not [name for name in ("best", "average", "soup", "tuned", "alike", "joined") if name not in help_text]


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version") == f"lidfl {package.__version__}\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("rnu", "run"), ("reprot", "report"), ("initflower", "init-flower"), ("lst", "list")]
)
def test_a_mistyped_command_is_told_what_was_meant(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = said(capsys, typed, "--rounds", 3, expect=2)
    assert error == f"lidfl: there is no command '{typed}'; did you mean 'lidfl {meant}'?\n"


def test_a_word_like_no_command_is_answered_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "xyzzy", expect=2).endswith(f"choose from {', '.join(COMMANDS)}\n")


@pytest.mark.parametrize("command", ["pick", "report"])
def test_the_way_out_of_a_missing_run_leads_out(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--client", 0] if command == "pick" else []
    error = said(capsys, command, "nowhere", *more, expect=2)
    advice = error.strip().rpartition("make one with: ")[2]
    assert advice == "lidfl run --out nowhere"
    said(capsys, *shlex.split(advice)[1:], "--rounds", 2, "--quiet")
    said(capsys, command, "nowhere", *more)
    assert "there is nowhere" in said(capsys, command, "elsewhere", *more, expect=2)


def test_a_folder_of_runs_is_not_a_run_and_its_runs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abcde":
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "experiment.toml").touch()
    error = said(capsys, "pick", "runs", expect=2)
    assert error.startswith("lidfl: runs is not a run of lidfl; there are runs/")
    assert error.endswith(" and 2 more\n")


def test_help_tells_exit_codes_and_how_to_complete(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(said(capsys, "--help").split())
    assert "Exit codes: 0 done; 1 a fault of lidfl itself" in text
    assert "130 stopped" in text
    assert "lidfl completion bash" in text


def test_the_completion_script_is_one_that_bash_reads(capsys: pytest.CaptureFixture[str]) -> None:
    script = said(capsys, "completion", "bash")
    assert all(command in script for command in COMMANDS)
    check = "source /dev/stdin && complete -p lidfl"
    done = subprocess.run(["bash", "-c", check], input=script, capture_output=True, text=True, check=True)
    assert "lidfl" in done.stdout


def test_every_command_that_prints_a_table_can_write_it_for_programs() -> None:
    for name in COMMANDS:
        assert ("json" in {field.name for field in fields(command_class(name))}) == (name not in PRINTS_NO_TABLE)


def test_what_is_written_for_programs_is_json_and_agrees_with_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def parsed(*words: object) -> Any:
        return json.loads(said(capsys, *words, "--json"))

    summary = parsed("run", "--rounds", 4, "--out", "runs/a")
    assert summary == json.loads((tmp_path / "runs" / "a" / "summary.json").read_text())
    choice = parsed("pick", "runs/a", "--client", 1)
    assert [str(model["model"]) for model in choice["models"]] == [*summary["per_model_accuracy"]]
    best = min(choice["models"], key=lambda model: model["validation_loss"])
    assert choice["chosen"] == best["model"]
    assert (tmp_path / choice["file"]).exists()
    (cell,) = parsed("table", "runs")["cells"]
    assert cell["values"] == [summary["deployed_accuracy"]]
    assert "femnist-lr-0.6" in parsed("reproduce", "list")
    kinds = parsed("list")
    assert {"name": "lie", "options": {"z": 20.0}}.items() <= next(
        a for a in kinds["attack"] if a["name"] == "lie"
    ).items()
    (tmp_path / "s.toml").write_text('rounds = 2\nattack = ["lie", "gauss"]\n')
    assert [kind["runs"] for kind in parsed("sweep", "s.toml", "--dry-run")] == [1, 1]
    assert [result["method"] for result in parsed("demo")["results"]] == ["fedavg", "lidfl"]
