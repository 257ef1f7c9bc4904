"""Whatever is typed, the answer is a result or one line: no traceback, nothing that hangs.

The table is made from the commands' own fields, so that a new option is in it by itself.
"""

import faulthandler
import os
import types
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl import Experiment, run
from lidfl.cli.main import COMMANDS, command_class
from lidfl.flower.signing import make_server_key
from lidfl.settings.defaults import SMALL
from tests.command import lidfl_here

LONG = "x" * 5000
HUGE = str(2**63)
ENDLESS = "9" * 401
ABSURD = {
    str: [LONG, "a\0b", "\udc80", ":", "", "::", "=,=", "a b"],
    int: ["0", "-1", HUGE, ENDLESS],
    float: ["0", "-1", "nan", "inf", "1e308", "5e-324"],
    Path: [LONG, "a\0b", "\udc80", "", "/", "/dev/null", "/dev/null/x", "/proc/x"],
}
"""What nobody means, by what is asked for."""
SECONDS = 60
"""Nothing takes so long, even on a busy machine; without a bound a hang would hang the suite."""


def kinds(hint: Any) -> list[type]:
    """The plain types of an option: those in a tuple, an alternative or an annotation count."""
    if hasattr(hint, "__metadata__"):
        return kinds(hint.__origin__)
    if get_origin(hint) in (Union, types.UnionType, tuple):
        return [kind for part in get_args(hint) for kind in kinds(part)]
    return [str] if get_origin(hint) is Literal else [hint] if hint in ABSURD else []


def options(name: str) -> list[tuple[str, type, bool]]:
    """Each option of a command that takes a value: its name, its type, and whether it has no dashes."""
    command = command_class(name)
    hints = get_type_hints(command, include_extras=True)
    found = []
    for option in fields(command):
        hint = hints[option.name]
        found += [(option.name, kind, "Positional" in repr(hint)) for kind in kinds(hint)[:1]]
    return found


USUAL: dict[str, dict[str, str]] = {
    "run": {"rounds": "1", "local_steps": "1", "num_clients": "4", "overwrite": "", "quiet": "", "out": "again"},
    "sweep": {"file": "sweep.toml", "out": "swept", "workers": "1"},
    "table": {"sweep": "runs"},
    "reproduce": {"name": "sweep", "show_only": ""},
    "report": {"sources": "run"},
    "pick": {"run": "run", "client": "0"},
    "plan": {"clients": "35", "honest": "14"},
    "demo": {},
    "federation": {"action": "up", "rounds": "1", "quiet": ""},
    "server": {"action": "up", "folder": "server"},
    "node": {"action": "up", "folder": "node", "server": "127.0.0.1:1", "insecure": ""},
    "init-flower": {"folder": "app"},
}
"""What each command is called with, besides the option that is absurd: a call that works, and is quick."""
WRITES_BELOW = {("demo", "out"), ("sweep", "out"), ("server", "folder"), ("node", "folder"), ("report", "figures")}
"""Options that name a folder to write into, where / may be just that."""
BRIEF = dict(rounds=1, local_steps=1, num_clients=5)
"""A run that is over at once."""


def calls(name: str) -> list[tuple[str, str]]:
    """Each option of a command with each absurd value; those that `federation` has from `run` are tried there."""
    inherited = {setting.name for setting in fields(Experiment)} if name == "federation" else set()
    found = [(option, kind) for option, kind, _ in options(name) if option not in inherited]
    pairs = [(option, value) for option, kind in found for value in ABSURD[kind]]
    return [(option, value) for option, value in pairs if value != "/" or (name, option) not in WRITES_BELOW]


def words(name: str, option: str, value: str) -> list[str]:
    """A call of a command in which one option is absurd."""
    given = USUAL.get(name, {}) | {option: value}
    positional = {known for known, _, is_positional in options(name) if is_positional}
    if option == "honest_fraction":
        del given["honest"]  # one or the other
    first = [text for key, text in given.items() if key in positional]
    switches = {"overwrite", "quiet", "show_only", "insecure"}
    flags = {key: text for key, text in given.items() if key not in positional}
    dashed = [f"--{key.replace('_', '-')}" + ("" if key in switches else f"={text}") for key, text in flags.items()]
    return [name, *first, *dashed]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands are called on: a run, a sweep, a server's and a node's folder."""
    folder = tmp_path_factory.mktemp("absurd")
    for out in ("run", "runs/one"):
        run(Experiment(rounds=1, local_steps=1, num_clients=4, out=str(folder / out)))
    (folder / "sweep.toml").write_text("rounds = 1\nlocal_steps = 1\nnum_clients = 4\n")
    (folder / "paper.csv").write_text("experiment,row,column,mean,std\n")
    for name in ("server", "node"):
        (folder / name).mkdir()
        for file in ("ca.crt", "server.crt", "server.key", "node.key"):
            (folder / name / file).write_text("")
        make_server_key(folder / name / "signing.key")
    return folder


@pytest.fixture
def quick(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started that runs until it is stopped, and nothing is drawn or played that takes seconds."""
    for name in ("link.run_superlink", "serving.attend", "node.run_supernode", "hosting.start_nursery"):
        monkeypatch.setattr(f"lidfl.flower.{name}", lambda *_, **__: None)
    for name in ("play_locally", "play_app"):
        monkeypatch.setattr(f"lidfl.flower.local.playing.{name}", lambda *_, **__: {"rounds": 1, "seconds": 1.0})
    monkeypatch.setattr("lidfl.settings.defaults.SMALL", SMALL | BRIEF)  # for the demo, which takes no --rounds
    monkeypatch.setattr("lidfl.studies.paper.PLACES", [place])
    monkeypatch.setattr("lidfl.studies.page.page", lambda *_: "")
    monkeypatch.setattr("lidfl.report.page.render", lambda _: "")
    monkeypatch.setattr("lidfl.report.page.write_figures", lambda *_: [])
    monkeypatch.setattr("lidfl.files.MOST_FOLDERS", 200)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.chdir(place)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("quick")
def test_whatever_a_command_is_given_it_works_or_says_why_in_one_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, value in calls(name):
        said = f"{name} {option} {value[:30]!r}"
        faulthandler.dump_traceback_later(SECONDS, exit=True, file=2)  # even inside a library
        try:
            code = lidfl_here(*words(name, option, value))
        except Exception as error:
            raise AssertionError(f"{said} ended in a traceback") from error
        finally:
            faulthandler.cancel_dump_traceback_later()
        err = capsys.readouterr().err
        assert "Traceback" not in err, said
        assert code in (0, 2), said
        if code and err.startswith("lidfl: "):  # else the words themselves were refused, with the usage
            assert len(err.splitlines()) == 1, said
            assert len(err) < 2000, said


def test_every_option_that_takes_a_value_is_in_the_table() -> None:
    assert len({(name, option) for name in COMMANDS for option, _ in calls(name)}) > 90
    assert {option for option, _ in calls("run")} >= {setting.name for setting in fields(Experiment)} - {
        "balance",
        "unsafe_list",
    }


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("run --list-size 9223372036854775808", "list_size must be from 1 to"),
        ("run --learning-rate 1e308", "learning_rate must be positive and at most 1e+38"),
        ("run --model :", "model ':'"),
        ("run --out sweep.toml", "cannot write to sweep.toml: Not a directory; set --out"),
        ("run --out /dev/null", "cannot write to /dev/null: Not a directory; set --out"),
        ("report run --out /dev/null", "/dev/null is not a file, and is left alone"),
        ("report run --out /", "/ is not a file, and is left alone"),
        ("report run --out no/such\0place", "there is a NUL character"),
        ("sweep sweep.toml --workers 0", "--workers must be from 1 to 1,024, not 0"),
        ("sweep sweep.toml --threads 0", "--threads must be from 1 to 1,024, not 0"),
        ("reproduce sweep --scale inf", "scale must be positive and at most 1,000, not inf"),
        ("plan --clients 1000000000 --honest 400000000", "--clients must be at least 1 and at most 10,000,000"),
        ("plan --clients 35 --honest 14 --eta 1e-300", "--eta must be at least 1e-12"),
        ("table runs --value commit", "'commit' is no number"),
        ("pick run --dataset table:colours.csv", "bring matching images"),
        ("report /", "/ has over 200 folders; name the one that holds the runs"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_what_once_ended_in_a_traceback_says_how_to_mend_it(
    typed: str, message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "colours.csv").write_text("a,b\n1,2\n3,4\n")
    before = os.stat("/dev/null").st_rdev
    assert lidfl_here(*typed.split(" ")) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert os.stat("/dev/null").st_rdev == before, "what is no file is not replaced"
