"""Where classes are unequal, what accuracy hides is told."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, recall_score

from lidfl import Experiment, RunDirectory, run
from lidfl.runs.classes import are_unequal, classes_in_words
from lidfl.simulation.simulator import Simulator
from lidfl.studies.formats import as_markdown, notes
from lidfl.studies.tables import tabulate


@pytest.fixture
def rare(tmp_path: Path) -> Path:
    """Of 4,000 images one in twenty is of the class 1, and lies a little apart."""
    rng = np.random.default_rng(3)
    labels = (np.arange(4000) % 20 == 0).astype(int)
    images = rng.normal(size=(4000, 1, 3, 3)).astype(np.float32) + np.float32(0.7) * labels[:, None, None, None]
    np.savez(tmp_path / "rare.npz", x=images, y=labels)
    return tmp_path / "rare.npz"


@pytest.mark.parametrize("deploy", ["best", "soup"])
def test_recalls_are_scikit_learns_over_what_honest_clients_deploy(rare: Path, tmp_path: Path, deploy: str) -> None:
    experiment = Experiment(dataset=f"npz:{rare}", model="lr", rounds=30, deploy=deploy, out=str(tmp_path / "run"))
    summary = run(experiment)
    simulator, models = Simulator.of(experiment), RunDirectory(experiment.out).final_state().models
    honest = simulator.cast.honest
    truth, told = [], []
    for model, client in zip(simulator.auditor.deployment.taken(models, honest), honest, strict=True):
        images, labels = simulator.data.test.of(client)
        truth += labels.tolist()
        told += simulator.judges.testing.logits(model, images).argmax(1).tolist()
    recalls = recall_score(truth, told, average=None)
    assert list(summary["deployed_recall"].values()) == pytest.approx(recalls)
    assert summary["deployed_balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, told))
    assert summary["deployed_lowest_recall"] == min(summary["deployed_recall"].values())
    assert (summary["smallest_class"], summary["largest_class"]) == pytest.approx(
        (np.mean(truth), 1 - np.mean(truth))
    )
    assert "lowest recall" in (classes_in_words(summary) or "")


SUMMARY = {
    "deployed_accuracy": 0.985,
    "deployed_balanced_accuracy": 0.672,
    "deployed_lowest_recall": 0.35,
    "deployed_recall": {"0": 0.994, "1": 0.35},
    "classes": 2,
    "smallest_class": 0.01,
    "largest_class": 0.99,
}


def test_a_line_says_what_accuracy_hides_and_equal_classes_need_none() -> None:
    assert classes_in_words(SUMMARY) == (
        "classes are unequal, 1 to 99 % of the test images each: balanced accuracy 0.672, lowest recall 0.350"
    )
    assert not are_unequal(SUMMARY | {"smallest_class": 0.1})
    assert are_unequal(SUMMARY | {"smallest_class": 0.099})
    assert classes_in_words({"deployed_accuracy": 0.9}) is None, "an earlier version did not count"


def test_a_class_that_no_honest_client_can_test_is_counted_and_said(tmp_path: Path) -> None:
    rng, labels = np.random.default_rng(3), np.arange(400) % 3
    labels[labels == 2] = np.where(np.arange(len(labels[labels == 2])) < 2, 2, 0)  # two images of the last class
    np.savez(tmp_path / "few.npz", x=rng.normal(size=(400, 1, 3, 3)).astype(np.float32), y=labels + (labels == 2))
    summary = run(Experiment(dataset=f"npz:{tmp_path}/few.npz", rounds=2, seed=1, out=str(tmp_path / "run")))
    assert summary["classes"] == 3, "there is no class 2"
    assert summary["untested_classes"] == [3]
    assert "class 3 is in the data and in no honest client's test images" in (classes_in_words(summary) or "")
    many = {"untested_classes": list(range(7))}
    assert classes_in_words(many) == (
        "7 classes (0, 1, 2, 3, 4, …) are in the data and in no honest client's test images"
    )


def test_tables_show_balanced_accuracy_and_the_lowest_recall_where_classes_are_unequal() -> None:
    grid = tabulate([(Experiment(), SUMMARY)], "method", "attack")
    assert as_markdown(grid).splitlines()[::2] == [
        "| method | sign_flip | balanced | lowest recall |",
        "| lidfl | 0.985 | 0.672 | 0.350 |",
    ]
    assert notes(grid)[-1].startswith("classes are unequal: balanced is the mean recall")
