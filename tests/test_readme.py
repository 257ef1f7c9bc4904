"""What the README shows works as it stands there, in the order printed."""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command import lidfl_here
from tests.handbook.pages import ROOT, blocks, follow

README = ROOT / "README.md"
TEXT = README.read_text()


def put_small_femnist(folder: Path) -> None:
    """Images with FEMNIST's shape and classes, which anyone could tell apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(1_800) % 62
    images = np.clip(rng.normal(40, 20, (1_800, 28, 28)) + 3 * labels[:, None, None], 0, 255).astype(np.uint8)
    np.savez(folder / "femnist.npz", images=images, labels=labels, writers=np.arange(1_800) // 10)


@pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")  # Flower's, of a library of its own
def test_every_command_of_the_readme_runs_in_the_order_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder that has the kept results, as a clone does; only the processes of `federation up` are spared."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    shutil.copy(ROOT / "results" / "femnist-lr-0.6.json", "results")
    (tmp_path / "data").mkdir()
    put_small_femnist(tmp_path / "data")
    monkeypatch.setenv("LIDFL_DATA", str(tmp_path / "data"))
    played = []

    def spared(experiment: Any, **_: object) -> dict[str, Any]:
        played.append(experiment)
        return {"rounds": experiment.rounds, "seconds": 0.0}

    monkeypatch.setattr("lidfl.flower.local.playing.play_locally", spared)
    follow(README)
    (experiment,) = played
    assert not Path(experiment.out).exists()  # so that real processes could start
    assert (experiment.num_clients, experiment.num_byzantine) == (6, 4)
    told = capsys.readouterr().out
    assert "list size                      5" in told
    assert (tmp_path / "runs" / "mine" / "summary.json").exists()


def test_the_table_of_the_demo_is_what_the_demo_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lidfl_here("demo") == 0
    shown = next(block.content for block in blocks(README) if "demo-fedavg" in block.content)
    seconds = re.compile(r"│ \d+\.\d +│(?= runs)")
    assert seconds.sub("", shown) in seconds.sub("", capsys.readouterr().out)
    assert shown in (ROOT / "docs" / "tutorial.md").read_text()


def test_the_readme_shows_the_two_commands() -> None:
    assert "make demo" in TEXT
    assert "make test" in TEXT


def test_every_relative_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!\w+:)([^)]+)\)", TEXT)
    assert len(links) > 10
    headings = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.+)$", TEXT, re.M)
    }
    for link in links:
        path, _, anchor = link.partition("#")
        assert not path or (ROOT / path).exists(), link
        assert path or anchor in headings, link


def test_the_paper_is_cited_alike_everywhere() -> None:
    doi = "10.1609/aaai.v39i18.34072"
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    cited = (ROOT / "CITATION.cff").read_text()
    assert urls["Paper"] == f"https://doi.org/{doi}"
    assert doi in cited
    assert f"doi       = {{{doi}}}" in TEXT
    assert f"repository-code: {urls['Repository']}\n" in cited
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"version: {version}\n" in cited
    for author in ("Liu", "Shan", "Bao", "You", "Yi", "Lv"):
        assert f"family-names: {author}," in cited
        assert re.search(rf"author .*\b{author}, ", TEXT)
