"""Reports are written where they should be, from whatever there is, and run nothing that a file names."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lidfl import LidflError
from lidfl.report import write_report
from tests.report.by_hand import FIVE, GOOD_LINE, SWEEP, put_results, put_run, recorded

RESULT = {"test_accuracy": 0.7, "deployed_accuracy": 0.8}


def test_a_page_needs_no_network_and_holds_its_script_once(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", GOOD_LINE)
    (page,) = write_report([run])
    assert page == run / "report.html"
    text = page.read_text()
    assert text.count("window.vegaEmbed=") == 1
    assert "<script src" not in text
    assert '<link rel="stylesheet"' not in text
    assert "default-src 'none'" in text


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    own = recorded(FIVE, name="</script><script>alert(1)</script>")
    (page,) = write_report([put_run(tmp_path / "run", GOOD_LINE, own)])
    assert "<script>alert" not in page.read_text()


def test_figures_are_written_for_a_paper(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", GOOD_LINE)
    _, *figures = write_report([run], figures=tmp_path / "figures")
    heads = {path.name: path.read_bytes()[:4] for path in figures}
    assert heads["lineage.svg"] == b"<svg"
    assert heads["lineage.pdf"] == b"%PDF"
    assert heads["lineage.png"] == b"\x89PNG"
    assert len(heads) == 18


def test_a_results_file_is_drawn_without_its_runs(tmp_path: Path) -> None:
    (page,) = write_report([put_results(tmp_path / "femnist-lr-0.6.json")])
    assert page == tmp_path / "femnist-lr-0.6.html"
    assert "lidfl reproduce femnist-lr-0.6" in page.read_text()
    assert "6 runs: 2 methods, 2 attacks and 2 seeds" in page.read_text()


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the current folder that leaves a trace if it is imported; returns where the trace would be."""
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('trace').touch()\ndef f(*a): return a\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "trace"


def test_the_report_of_a_run_imports_nothing_that_it_names(trap: Path) -> None:
    own = recorded(FIVE, model="evil:f", attack="reversed_mean", vote_attack="mine:z=2", dataset="ours")
    run = put_run(trap.parent / "run", GOOD_LINE, own, RESULT)
    (page,) = write_report([run])
    assert "lidfl on ours-evil:f, list of 2" in page.read_text()
    assert "--dataset ours --num-clients 5 --model evil:f" in page.read_text()
    assert "reversed_mean" in page.read_text()
    (folder,) = write_report([trap.parent])
    assert "ours-evil:f, 60\u00a0% Byzantine" in folder.read_text()
    assert not trap.exists()
    assert "evil" not in sys.modules


def test_the_report_of_a_results_file_imports_nothing_that_it_names(trap: Path) -> None:
    strange = {"model": "evil:f", "attack": "reversed_mean", "partition": "evil:f"}
    runs = [replace(run, experiment=recorded(run.experiment, **strange)) for run in SWEEP[:4]]
    (page,) = write_report([put_results(trap.parent / "kept.json", runs)])
    assert "digits-evil:f, 60\u00a0% Byzantine" in page.read_text()
    assert "reversed_mean" in page.read_text()
    assert not trap.exists()
    assert "evil" not in sys.modules


@pytest.mark.parametrize(
    ("sources", "formats", "message"),
    [
        (
            ["nowhere"],
            ["svg"],
            "there is no nowhere; name a run directory, a folder of runs or a results file: there is run",
        ),
        (["."], ["svg"], "there are no finished runs in ."),
        (["broken.json"], ["svg"], "broken.json is not a results file of `lidfl reproduce`"),
        (["empty.json"], ["svg"], "there are no results in empty.json"),
        (["run"], ["svg"], "run has no finished round yet"),
        (["broken.json"], ["gif"], "unknown figure format 'gif'; choose from svg, pdf, png"),
        ([], ["svg"], "name a run directory, a folder of runs or a results file"),
    ],
)
def test_bad_input_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: list[str], formats: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("[1, 2]")
    (tmp_path / "empty.json").write_text("{}")
    put_run(tmp_path / "run", [])
    with pytest.raises(LidflError) as refused:
        write_report([Path(source) for source in sources], formats=formats)
    assert str(refused.value).startswith(message)
    assert len(str(refused.value).splitlines()) == 1


def test_a_page_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", GOOD_LINE)
    with pytest.raises(LidflError, match=r"cannot write to .*set out=… or figures=…"):
        write_report([run], out=Path("/dev/null/page.html"))
    with pytest.raises(LidflError, match="a report of several places needs a name; set out=…"):
        write_report([run, run])


def test_a_mistyped_name_does_not_wait_for_what_draws() -> None:
    script = """
import sys
from dataclasses import replace
from pathlib import Path
from lidfl.errors import LidflError
from lidfl.report import write_report
try:
    write_report([Path("nowhere")])
except LidflError:
    sys.exit(bool({"altair", "vl_convert", "torch"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
