"""A damaged file of a run is read, or refused in one line that names it and the way out."""

from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from lidfl import Experiment, LidflError, RunDirectory, run
from lidfl.report.figures.phases import phases_figure
from lidfl.report.page import DRAW, paper
from lidfl.report.read import RunRecords
from lidfl.report.story import compose
from lidfl.studies.store import Kept, Shelf, read_kept
from lidfl.studies.sweep import Sweep, read_sweep
from tests.mutated import mutations, rewrite
from tests.records import round_record

COUNT = 400
"""Mutated files of each kind."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, its results file and a sweep file."""
    folder = tmp_path_factory.mktemp("damaged")
    experiment = Experiment(rounds=6, eval_every=2, local_steps=1, num_clients=5, out=str(folder / "run"))
    run(experiment)
    Shelf(folder).keep(Sweep("results", folder, (experiment,)))
    (folder / "sweep.toml").write_text(
        'name = "s"\nrows = "method"\nrounds = 2\nnum_clients = 5\nseed = [1, 2]\n[groups.a]\nattack = "lie"\n'
    )
    return folder


def read_list(folder: Path) -> object:
    return RunDirectory(folder / "run").checkpoint(), RunDirectory(folder / "run").rounds_done()


READERS: dict[str, Callable[[Path], object]] = {
    "run/summary.json": lambda folder: RunDirectory(folder / "run").summary(),
    "run/rounds.jsonl": lambda folder: RunRecords.read(folder / "run").lineage.line,
    "run/statistics.safetensors": lambda folder: RunDirectory(folder / "run").inputs(),
    "run/checkpoint.safetensors": read_list,
    "run/experiment.toml": lambda folder: RunDirectory(folder / "run").experiment(),
    "results.json": lambda folder: read_kept(folder / "results.json"),
    "sweep.toml": lambda folder: read_sweep(folder / "sweep.toml", folder / "out"),
}
"""The one reader of each file."""


@pytest.mark.parametrize("name", READERS)
def test_a_mutated_file_is_read_or_refused_in_one_line(name: str, finished: Path) -> None:
    file, read = finished / name, READERS[name]
    whole = file.read_bytes()
    read(finished)
    refused = []
    try:
        for number, content in enumerate(mutations(whole, COUNT)):
            rewrite(file, content)
            try:
                read(finished)
            except LidflError as error:
                refused.append(str(error))
            except Exception as error:
                raise AssertionError(f"mutation {number} of {name} ended in a traceback") from error
    finally:
        file.write_bytes(whole)
    assert len(refused) > COUNT // 10
    if "toml" not in name:
        named = [message for message in refused if file.name in message or "no finished round yet" in message]
        assert len(named) == len([message for message in refused if ";" in message]) == len(refused)


@pytest.mark.parametrize("name", ["run/summary.json", "run/rounds.jsonl"])
def test_a_report_on_a_mutated_run_is_written_or_refused_in_one_line(name: str, finished: Path) -> None:
    file = finished / name
    whole = file.read_bytes()
    drawn = 0
    try:
        for number, content in enumerate(mutations(whole, 150, seed=1)):
            rewrite(file, content)
            try:
                RunRecords.read(finished / "run")
            except LidflError:
                continue
            if drawn < 12:  # figures take their time
                drawn += 1
                try:
                    compose([finished / "run"])
                except LidflError:
                    pass
                except Exception as error:
                    raise AssertionError(f"mutation {number} of {name} ended in a traceback") from error
    finally:
        file.write_bytes(whole)
    assert drawn


@pytest.mark.parametrize("lists", [4, 6, 9])
def test_a_sweep_without_end_is_counted_not_made(tmp_path: Path, lists: int) -> None:
    names = [
        "seed",
        "rounds",
        "local_steps",
        "batch_size",
        "eval_every",
        "candidates",
        "voters",
        "workers",
        "lookahead",
    ]
    ten = list(range(1, 11)) + [11] * 3
    (tmp_path / "sweep.toml").write_text("".join(f"{name} = {ten}\n" for name in names[:lists]))
    with pytest.raises(LidflError, match=rf"sweep.toml stands for {13**lists:,} runs; .* shorten its lists"):
        read_sweep(tmp_path / "sweep.toml")


@pytest.mark.parametrize(
    "phase", ["__proto__", "constructor", "</script>", "it's", 'a "b" \\', "x" * 900, "a.b[0]"]
)
def test_whatever_a_phase_is_called_its_chart_is_drawn(phase: str, finished: Path) -> None:
    record = round_record(phases={phase: 0.25, "train": 0.25})
    told = RunRecords(RunDirectory(finished / "run"), Experiment(), [record], None)
    drawn = DRAW["svg"](paper(phases_figure(told))).decode()
    assert escape(phase)[:20] in drawn
    assert "train" in drawn


def test_an_empty_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text("seed = []\n")
    with pytest.raises(LidflError, match="stands for 0 runs"):
        read_sweep(tmp_path / "sweep.toml")


def test_a_kept_run_reads_back_as_it_was(finished: Path) -> None:
    (kept,) = read_kept(finished / "results.json").values()
    assert Kept.from_json(kept.to_json()) == kept
