"""A file of the user's own is loaded by name, recorded by content, and told of in one line when it is wrong."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lidfl
from lidfl import Experiment, RunDirectory, attack, plugins
from lidfl.learning.models import absolute_model, build_model
from lidfl.plugins import absolute, load_recorded
from lidfl.registry import Registry
from lidfl.report.read import RunRecords
from lidfl.report.story import run_commands
from lidfl.studies.running import run_all
from lidfl.studies.sweep import Sweep, read_sweep
from tests.command import lidfl_here

MINE = '''
import lidfl
from torch import nn

@lidfl.attack
def {attack}(honest, *, strength: float = 2.0):
    """Everyone sends the honest mean, reversed."""
    return -strength * honest.mean(0)

def net(image_shape, num_classes, hidden=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

class Pair(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)
    def forward(self, images):
        return super().forward(images.flatten(1)), 1

class LookUp(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(6, 2), nn.Linear(128, 10)
    def forward(self, images):  # only some images hold a deviation of more than 5
        return self.last(self.table(images.flatten(1).abs().long()).flatten(1))

def broken():
    raise KeyError("width")
'''
FEW = ["--rounds", 3, "--local-steps", 2, "--num-clients", 6, "--quiet"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `mine.py` in it, which is where we are."""
    (tmp_path / "mine.py").write_text(MINE.format(attack="backwards"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attack, "functions", dict(attack.functions))
    return tmp_path


def forget_all() -> None:
    """As in a process of its own."""
    plugins._loaded.clear()
    attack.functions.pop("backwards", None)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_plugins_rules_are_there_by_name_and_the_run_records_its_digest(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "--plugin", "mine.py", "--attack", "backwards:strength=5", "--out", "run", *FEW]
    assert lidfl_here(*command) == 0
    recorded = RunDirectory("run").experiment()
    assert recorded.plugin.startswith("mine.py@")
    assert load_recorded("mine.py") == recorded.plugin
    assert lidfl_here("run", "--config", "run/experiment.toml", "--resume", "--quiet") == 0
    assert lidfl_here("list", "--plugin", "mine.py") == 0
    assert "backwards" in capsys.readouterr().out


def test_several_plugins_are_given_one_by_one(here: Path) -> None:
    shutil.copy("mine.py", "more.py")
    Path("more.py").write_text(MINE.format(attack="sideways"))
    assert (
        lidfl_here(
            "run", "--plugin", "mine.py", "--plugin", "more.py", "--attack", "sideways", "--out", "run", *FEW
        )
        == 0
    )
    names = [part.partition("@")[0] for part in RunDirectory("run").experiment().plugin.split("; ")]
    assert names == ["mine.py", "more.py"]
    assert Experiment(plugin=["mine.py", "./more.py", "mine.py"]).plugin.count("@") == 2  # type: ignore[arg-type]


def test_resume_says_when_a_plugin_has_changed_or_is_missing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "--plugin", "mine.py", "--attack", "backwards", "--out", "run", *FEW]
    assert lidfl_here(*command) == 0
    before = Path("mine.py").read_text()
    Path("mine.py").write_text(before + "# later\n")
    capsys.readouterr()
    assert lidfl_here(*command, "--resume") == 2
    told = "lidfl: plugin mine.py has changed since run was begun; resume with the same file, or set --out to"
    assert said(capsys).startswith(told)
    assert lidfl_here("run", "--config", "run/experiment.toml", "--resume") == 2
    told = (
        "lidfl: plugin mine.py has changed since it was recorded: bring the old file back, or set --plugin mine.py"
    )
    assert said(capsys).startswith(told)
    Path("mine.py").rename("elsewhere.py")
    forget_all()
    digest = RunDirectory("run").experiment().plugin.partition("@")[2]
    assert lidfl_here("run", "--config", "run/experiment.toml", "--resume") == 2
    assert said(capsys).endswith(
        f"no plugin mine.py here; the run was made with it, digest {digest}: bring it back"
    )
    Path("elsewhere.py").write_text(before)
    moved = [word if word != "mine.py" else "elsewhere.py" for word in command]
    forget_all()
    assert lidfl_here(*moved, "--resume") == 0, "the content counts, not the place"


def test_the_workers_of_a_sweep_load_plugins_too(here: Path) -> None:
    Path("sweep.toml").write_text(
        'attack = ["backwards", "backwards:strength=9"]\nrounds = 2\nnum_clients = 6\nlocal_steps = 1\n'
    )

    def sweep() -> Sweep:  # whole paths: workers may have been started by other tests, elsewhere
        return read_sweep(here / "sweep.toml", here / "runs", plugin=[here / "mine.py"])

    assert [ended.error for ended in run_all(sweep(), workers=2)] == [None, None]
    assert sweep().waiting == []
    Path("mine.py").write_text(MINE.format(attack="backwards") + "# later\n")
    assert len(sweep().waiting) == 2, "other code, other runs"


def test_a_sweep_file_may_name_plugins_without_multiplying_runs(here: Path) -> None:
    Path("more.py").write_text(MINE.format(attack="sideways"))
    Path("sweep.toml").write_text('plugin = ["mine.py", "more.py"]\nattack = ["backwards", "sideways"]\n')
    assert len(read_sweep(Path("sweep.toml")).runs) == 2


@pytest.mark.parametrize("spec", ["./mine.py:net:hidden=4", "./mine.py:net:4", "mine:net:hidden=4"])
def test_a_model_of_ones_own_takes_options(here: Path, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    experiment = Experiment(model=spec)
    assert experiment.plugin.startswith("./mine.py@") == spec.startswith("./"), "a file is recorded by its content"
    module = build_model(spec, (1, 8, 8), 10, seed=0)
    assert sum(p.numel() for p in module.parameters()) == 64 * 4 + 4 + 4 * 10 + 10


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "./mine.py:net:width=4"], "model './mine.py:net' has no option 'width'; it takes hidden"),
        (["--model", "./mine.py:net:hidden=many"], "option 'hidden' of model './mine.py:net' must be int"),
        (["--model", "./mine.py:nothing"], "model './mine.py:nothing': the module has no 'nothing'"),
        (["--model", "./gone.py:net"], "there is no plugin ./gone.py here; name a Python file"),
        (["--model", "./mine.py:Pair"], "gives a tuple; it must give its logits alone, a tensor"),
        (["--model", "./mine.py:LookUp"], "not take images of (1, 8, 8): IndexError: index out of range in self"),
        (["--model", "./mine.py:broken"], "model './mine.py:broken' cannot be made: KeyError: 'width'"),
        (["--plugin", "."], "cannot read plugin .: "),
        (["--plugin", "syntax.py"], "plugin syntax.py, line 1: SyntaxError: "),
        (["--plugin", "raises.py"], "plugin raises.py, line 2: ZeroDivisionError: division by zero"),
        (["--plugin", "leaves.py"], "plugin leaves.py, line 2: SystemExit: 3"),
        (["--plugin", "wrong.py"], "plugin wrong.py, line 2: TypeError: attack 'wrong' names 'gradients', which"),
        (["--plugin", "taken.py"], "plugin taken.py, line 2: TypeError: attack 'lie' exists already"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_ones_own_code_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    header = "import lidfl, sys\n"
    Path("syntax.py").write_text("def f(:\n")
    Path("raises.py").write_text("x = 0\n1 / x\n")
    Path("leaves.py").write_text("import sys\nsys.exit(3)\n")
    Path("wrong.py").write_text(header + '@lidfl.attack\ndef wrong(gradients):\n    """Wrong."""\n')
    Path("taken.py").write_text(header + '@lidfl.attack\ndef lie(own):\n    """Taken."""\n')
    assert lidfl_here("run", *words, "--quiet", "--out", "run") == 2
    assert told in said(capsys)
    assert not Path("run").exists()


def test_pick_loads_what_the_run_was_made_with(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--model", "./mine.py:net", "--engine", "loop", "--out", "run", *FEW]
    assert lidfl_here(*words) == 0
    Path("mine.py").rename("gone.py")
    forget_all()
    assert lidfl_here("pick", "run", "--client", 2) == 2
    assert "there is no plugin ./mine.py here; the run was made with it" in capsys.readouterr().err
    Path("gone.py").rename("mine.py")
    assert lidfl_here("pick", "run", "--client", 2) == 0
    assert "written to run/client-2.safetensors" in capsys.readouterr().out


def test_a_record_can_be_made_absolute_for_other_processes(here: Path) -> None:
    record = load_recorded("mine.py")
    assert absolute(record) == f"{here / 'mine.py'}@{record.partition('@')[2]}"
    assert load_recorded(absolute(record)) == absolute(record)


def test_a_model_in_a_file_can_be_named_from_anywhere(here: Path) -> None:
    assert absolute_model("./mine.py:net:hidden=4") == f"{here / 'mine.py'}:net:hidden=4"
    assert absolute_model("package.module:net") == "package.module:net"


def test_reading_a_run_never_loads_its_plugins(here: Path) -> None:
    Path("loud.py").write_text("import lidfl\nlidfl.loud = True\n")
    run = lidfl.run(Experiment(plugin="loud.py", rounds=2, local_steps=1, out="run"))
    assert lidfl.__dict__.pop("loud")
    forget_all()
    assert lidfl.Run("run").experiment == run.experiment
    assert run_commands(RunRecords.read(Path("run")))
    assert "loud" not in lidfl.__dict__


def test_a_function_that_could_not_be_called_is_refused_when_it_is_registered() -> None:
    dish = Registry[None]("dish", frozenset({"oven"}), given=("flour",))

    def fine(flour: float, oven: str, *, eggs: int = 3) -> None:
        """Fine."""

    def empty() -> None:
        """Takes nothing."""

    def swapped(oven: str, flour: float) -> None:
        """Takes context first."""

    def early(flour: float, eggs: int = 3) -> None:
        """An option that no spec reaches."""

    def hidden(flour: float, oven: str, /) -> None:
        """Context that cannot be named."""

    dish(fine)
    cases: list[tuple[Callable[..., None], str]] = [
        (empty, "dish 'empty' must take flour first"),
        (swapped, "dish 'swapped' must take flour first"),
        (early, "dish 'early' names 'eggs', which it is not given: it may name oven; an option comes after a *"),
        (hidden, "dish 'hidden' names 'oven', which it is not given"),
    ]
    for wrong, reason in cases:
        with pytest.raises(TypeError, match=reason.replace("*", r"\*")):
            dish(wrong)
    assert list(dish) == ["fine"]
