"""What stands on a page: of one run, and of a sweep."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lidfl.errors import LidflError
from lidfl.report.facts import run_facts
from lidfl.report.figures.accuracy import accuracy_figure
from lidfl.report.figures.base import Figure
from lidfl.report.figures.breakdown import breakdown_figure
from lidfl.report.figures.clients import deployed_figure, partition_figure
from lidfl.report.figures.curves import curves_figure, has_curves
from lidfl.report.figures.heat_map import heat_map_figure
from lidfl.report.figures.lineage import lineage_figure
from lidfl.report.figures.loss import loss_figure
from lidfl.report.figures.margin import margin_figure
from lidfl.report.figures.methods import MOST_METHODS, method_styles
from lidfl.report.figures.phases import phases_figure
from lidfl.report.figures.spread import spread_figure
from lidfl.report.figures.votes import votes_figure
from lidfl.report.page import Fact, Page, TableSection, repeat_command
from lidfl.report.read import RunRecords, read_runs
from lidfl.report.scenes import Scene, scenes
from lidfl.report.words import counted, listed, percent
from lidfl.runs.classes import classes_in_words
from lidfl.runs.directory import RunDirectory, Summary, unfinished_runs
from lidfl.runs.resuming import EXPERIMENT, resume_command
from lidfl.settings.experiment import Experiment, file_name
from lidfl.settings.headline import headline
from lidfl.settings.objects import objects_of
from lidfl.studies.paper import names
from lidfl.studies.store import Kept

OPEN = {
    "voters": (0, "all"),
    "workers": (0, "as many as needed"),
    "assumed_byzantine_fraction": (-1.0, "what it is"),
}
"""Settings of which one value stands for something, and what."""
FEW_RUNS = 4
"""Up to how many runs a sweep's page also shows their lineage."""


def compose(sources: Sequence[Path]) -> Page:
    """The page of one run, or of many."""
    if len(sources) == 1 and RunDirectory(sources[0]).is_run:
        return run_page(RunRecords.read(sources[0]))
    runs = [run for source in sources for run in read_runs(source)]
    waiting = sum(len(unfinished_runs(source)) for source in sources if source.is_dir())
    notices = [f"{counted(waiting, 'run')} without a result yet: left out."] if waiting else []
    title = sources[0].resolve().stem if len(sources) == 1 else "Runs side by side"
    return sweep_page(title, runs, notices=notices, traced=few(runs))


def few(runs: Sequence[Kept]) -> list[RunRecords]:
    """The runs whose lineage is shown: of a handful those that keep a list, if their directories are there."""
    places = [RunDirectory(run.experiment.out) for run in runs if run.experiment.keeps_list]
    found = [place.path for place in places if place.rounds_file.exists()]
    return [RunRecords.read(place) for place in found] if len(runs) <= FEW_RUNS else []


def footer(summary: Summary | None) -> str:
    """Which version wrote the page, and which made the runs."""
    written = f"Written by lidfl {version('lidfl')}."
    if not summary or "version" not in summary:
        return written
    commit = f", commit {summary['commit']}" if summary.get("commit") else ""
    return f"{written} Run by lidfl {summary['version']}{commit}."


# A run


def run_page(run: RunRecords) -> Page:
    """The report of one run."""
    experiment = run.experiment
    return Page(
        title=run.directory.path.resolve().name,
        lead=f"{headline(experiment)}; seed {experiment.seed}.",
        facts=run_facts(run),
        blocks=list(run_figures(run)),
        notices=run_notices(run),
        settings=readable(asdict(experiment)),
        commands=run_commands(run),
        footer=footer(run.summary),
    )


def run_figures(run: RunRecords) -> list[Figure]:
    """The figures of a run; a single model has no votes and no lineage."""
    figures = [
        accuracy_figure(run),
        loss_figure(run),
        lineage_figure(run),
        votes_figure(run),
        margin_figure(run),
        deployed_figure(run.clients),
        partition_figure(run.clients),
        phases_figure(run),
    ]
    return [figure for figure in figures if figure is not None]


def run_notices(run: RunRecords) -> list[str]:
    """What a reader must know before the figures."""
    notices = []
    rounds = run.experiment.rounds
    hidden = classes_in_words(run.summary or {})
    if hidden:
        notices.append(f"{hidden[0].upper()}{hidden[1:]}.")
    if run.summary is None:
        notices.append(
            f"This run is unfinished: {run.rounds_done:,} of {rounds:,} rounds are recorded. "
            f"Go on with: {resume_command(run.directory.path)}"
        )
    if run.diverged_at is not None:
        notices.append(
            f"The model diverged: after round {run.diverged_at:,} no client could train it to finite numbers. "
            f"The run stopped there and keeps its accuracy for the {rounds - run.diverged_at:,} rounds left."
        )
    if run.stopped_at is not None:
        notices.append(f"A callback ended this run after round {run.stopped_at:,} of {rounds:,}.")
    if not run.experiment.keeps_list:
        notices.append(
            f"{run.experiment.method} keeps one model and holds no vote, so there are no votes, no validation "
            "losses and no lineage to draw."
        )
    return notices


def run_commands(run: RunRecords) -> list[tuple[str, str]]:
    """How to repeat a run."""
    path = run.directory.path
    given = objects_of(run.experiment)
    if given:
        again = ", ".join(f"{name}=…" for name in given)
        return [("In Python, with the same objects:", f"lidfl.run(Experiment({again}, …))")]
    return [
        ("The same settings on any machine:", repeat_command(run.experiment)),
        ("From this run's own file:", f"lidfl run --config {path / EXPERIMENT} --out {path}-again"),
    ]


# A sweep


def sweep_page(
    title: str, runs: Sequence[Kept], *, notices: Sequence[str] = (), traced: Sequence[RunRecords] = ()
) -> Page:
    """The report of many runs; of a few of them the lineage may be shown too."""
    chapters = scenes(runs)
    methods = list(dict.fromkeys(method for scene in chapters for method in scene.methods))
    drawn = best_methods(chapters, methods)
    blocks: list[Figure | TableSection] = [b for b in [breakdown_figure(chapters, drawn)] if b is not None]
    blocks += [block for scene in chapters for block in scene_blocks(scene, drawn)]
    return Page(
        title=title,
        lead=f"{counted(len(runs), 'run')}: {_contents(chapters, methods)}.",
        facts=sweep_facts(runs, chapters, methods),
        blocks=[*blocks, *lineages(traced)],
        notices=[*notices, *without_curves(chapters)],
        settings=readable(shared_settings([run.experiment for run in runs])),
        settings_title="What all runs share",
        commands=sweep_commands(title),
        methods=list(method_styles(drawn).values()),
        scenes=[scene.title for scene in chapters],
        groups=all_attacks(chapters),
        footer=footer(runs[0].summary),
    )


def scene_blocks(scene: Scene, drawn: Sequence[str]) -> list[Figure | TableSection]:
    """The figures and the table of one chapter; figures only if one of its methods is drawn."""
    if set(scene.methods).isdisjoint(drawn):
        return [scene_table(scene)]
    spread = spread_figure(scene, list(drawn))
    curves = [curves_figure(scene, drawn)] if has_curves(scene) else []
    return [*curves, heat_map_figure(scene, drawn), *([spread] if spread else []), scene_table(scene)]


def without_curves(chapters: Sequence[Scene]) -> list[str]:
    """One sentence about those of which accuracy over rounds cannot be drawn, if there are any."""
    told = [scene.title for scene in chapters if not has_curves(scene)]
    if not told:
        return []
    where = "" if len(told) == len(chapters) else f" of {listed(told)}"
    return [f"The runs{where} were tested at their end alone, so there is no accuracy over rounds to draw."]


def scene_table(scene: Scene) -> TableSection:
    """The table of one chapter."""
    name = f"table{scene.suffix}-{file_name(*scene.title.replace(',', '').split())}"
    title = f"What honest clients deploy, and what it costs{scene.where}"
    return TableSection(title, name, scene.grid, scene.title)


def lineages(traced: Iterable[RunRecords]) -> list[Figure]:
    """The family tree of each run."""
    figures = []
    for number, run in enumerate(traced, start=1):
        title = f"Lineage of the list: {run.experiment.name}, seed {run.experiment.seed}"
        figures.append(lineage_figure(run, name=f"lineage-{number}", title=title))
    return [figure for figure in figures if figure is not None]


def sweep_commands(title: str) -> list[tuple[str, str]]:
    """How to repeat a sweep, if it is one of the paper's; an installed package may not have these."""
    try:
        known = title in names()
    except LidflError:
        return []
    return [("Every run, with the paper's numbers beside ours:", f"lidfl reproduce {title}")] if known else []


def _contents(chapters: Sequence[Scene], methods: Sequence[str]) -> str:
    seeds = {run.experiment.seed for scene in chapters for run in scene.runs}
    attacks = all_attacks(chapters)
    parts = [counted(len(methods), "method"), counted(len(attacks), "attack"), counted(len(seeds), "seed")]
    titles = [scene.title for scene in chapters]
    return f"{listed(parts)}, on {listed(titles) if len(titles) <= 4 else f'{len(titles)} settings'}"


def all_attacks(chapters: Iterable[Scene]) -> list[str]:
    """The columns of all chapters."""
    return sorted({attack for scene in chapters for attack in scene.attacks})


def best_methods(chapters: Sequence[Scene], methods: Sequence[str]) -> list[str]:
    """All methods in their order, or if they are too many to tell apart those of the highest mean accuracy."""
    means: dict[str, list[float]] = {method: [] for method in methods}
    for scene in chapters:
        for (method, _), cell in scene.grid.cells.items():
            means[method].append(cell.mean)
    ranked = sorted(methods, key=lambda method: -sum(means[method]) / len(means[method]))
    return [method for method in methods if method in ranked[:MOST_METHODS]]


def sweep_facts(runs: Sequence[Kept], chapters: Sequence[Scene], methods: Sequence[str]) -> list[Fact]:
    """The numbers at the top of a sweep's page."""
    attacks = all_attacks(chapters)
    fractions = sorted({run.experiment.byzantine_fraction for run in runs})
    numbers = [(len(runs), "finished run"), (len(methods), "method"), (len(attacks), "attack")]
    facts = [Fact(f"{number:,}", noun if number == 1 else f"{noun}s") for number, noun in numbers]
    facts.append(Fact(", ".join(percent(fraction) for fraction in fractions), "of the clients are Byzantine"))
    hardest = chapters[-1]
    value, method = max((hardest.worst_case(method)[0], method) for method in hardest.contenders)
    where = f", {hardest.title}" if len(chapters) > 1 else ""
    return [*facts, Fact(f"{value:.3f}", f"under its worst attack: {method}{where}")]


def readable(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as people read them: voters are all, not 0."""
    return {
        name: OPEN[name][1] if name in OPEN and value == OPEN[name][0] else value
        for name, value in settings.items()
    }


def shared_settings(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """The settings that are the same in all runs."""
    first = asdict(experiments[0])
    return {name: value for name, value in first.items() if all(getattr(e, name) == value for e in experiments)}
