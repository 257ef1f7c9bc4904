"""What the README shows works as it stands there."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pick, *api = PYTHON
    exec("\n".join(api), {"__name__": "readme"})
    exec('import lidfl\nlidfl.pick("runs/first", client=3, out="mine.safetensors")\n' + pick, {})
    assert (tmp_path / "runs" / "mine" / "summary.json").exists()


def test_the_readme_shows_the_two_commands() -> None:
    assert "make demo" in README
    assert "make test" in README
