"""What the tutorial and the how-tos tell people to type works, in that order, in an empty folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lidfl.adversaries.attacks import attack
from lidfl.adversaries.vote_attacks import vote_attack
from lidfl.data import dataset
from lidfl.learning.models import model
from lidfl.methods.aggregators import aggregator
from lidfl.methods.elections import election
from lidfl.methods.method import METHODS
from tests.handbook.pages import ROOT, follow

DOCS = ROOT / "docs"
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
REGISTRIES = [attack, vote_attack, dataset, model, aggregator, election]


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, and registries as they were."""
    monkeypatch.chdir(tmp_path)
    before, methods = [dict(registry.functions) for registry in REGISTRIES], dict(METHODS)
    yield
    for registry, functions in zip(REGISTRIES, before, strict=True):
        registry.functions = functions
    METHODS.clear()
    METHODS.update(methods)


def test_the_tutorial_leads_from_nothing_to_a_model_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    follow(DOCS / "tutorial.md")
    told = capsys.readouterr().out
    deployed = {name: accuracy_of(told, name) for name in ("plain", "median", "robust", "ceiling")}
    assert max(deployed["plain"], deployed["median"]) < 0.5 < 0.85 < min(deployed["robust"], deployed["ceiling"])
    assert "two models" in (DOCS / "tutorial.md").read_text()
    assert "a list of 2 models" in told


def accuracy_of(told: str, name: str) -> float:
    line = next(line for line in told.splitlines() if line.endswith(f"runs/{name}-2024"))
    return float(line.partition("clients deploy ")[2].split()[0])


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_how_to_can_be_typed_as_it_stands(page: Path) -> None:
    follow(page)
