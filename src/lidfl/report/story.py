"""What a page holds: of a run, and of a sweep."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from lidfl.config import Experiment, file_name
from lidfl.display import headline
from lidfl.errors import LidflError
from lidfl.report import captions, figures
from lidfl.report.figures import BEST, DEPLOYED, MOST_METHODS, Figure, Key, Panel, origin_keys
from lidfl.report.page import Fact, Page, TableSection, repeat_command
from lidfl.report.read import Played, RunRecords, Scene, lowest_losses, percent, scenes, smallest_margin
from lidfl.reproduce import names
from lidfl.rundir import resume_command

LINES = (Key(BEST, "currentColor", "line"), Key(DEPLOYED, "currentColor", "dashed"))

FEW_ATTACKS = 3
"""Up to how many attacks a heat map and a table have room side by side."""


def run_page(run: RunRecords) -> Page:
    """The report of one run."""
    experiment = run.experiment
    return Page(
        title=run.directory.path.resolve().name,
        lead=f"{headline(experiment)}; seed {experiment.seed}.",
        facts=run_facts(run),
        blocks=list(run_figures(run)),
        notices=run_notices(run),
        settings=asdict(experiment),
        commands=run_commands(run),
        footer=footer(run.summary),
    )


def footer(summary: dict[str, Any] | None) -> str:
    """Which version wrote the page and which the runs."""
    written = f"Written by lidfl {version('lidfl')}."
    if not summary or "version" not in summary:
        return written
    commit = f", commit {summary['commit']}" if summary.get("commit") else ""
    return f"{written} Run by lidfl {summary['version']}{commit}."


def run_facts(run: RunRecords) -> list[Fact]:
    """The numbers at the top of a run's page."""
    experiment, tested = run.experiment, run.tested
    facts = []
    if run.summary:
        facts = [
            Fact(
                f"{run.summary['test_accuracy']:.3f}",
                "test accuracy, best model" if experiment.keeps_list else "test accuracy",
            ),
            Fact(f"{run.summary['deployed_accuracy']:.3f}", "deployed by honest clients"),
        ]
    elif tested:
        facts = [
            Fact(f"{max(tested[-1]['accuracy'].values()):.3f}", "test accuracy when last tested"),
            Fact(f"{tested[-1]['deployed_accuracy']:.3f}", "deployed when last tested"),
        ]
    facts.append(Fact(f"{experiment.num_byzantine} of {experiment.num_clients}", "clients are Byzantine"))
    smallest = smallest_margin(run.lines)
    if smallest:
        facts.append(Fact(str(smallest[0]), "ballots: the smallest vote margin"))
    done = f"{run.rounds_done:,}"
    total = "" if run.rounds_done == experiment.rounds else f" of {experiment.rounds:,}"
    return [*facts, Fact(done + total, "rounds"), Fact(f"{run.seconds:.1f} s", "spent in rounds")]


def run_notices(run: RunRecords) -> list[str]:
    """What a reader must know before the figures."""
    notices = []
    if run.summary is None:
        notices.append(
            f"This run is unfinished: {run.rounds_done:,} of {run.experiment.rounds:,} rounds are recorded. "
            f"Go on with: {resume_command(run.directory.path)}"
        )
    if run.diverged_at is not None:
        notices.append(
            f"The model diverged: after round {run.diverged_at:,} no client could train it to finite numbers. "
            f"The run stopped there and keeps its accuracy for the {run.experiment.rounds - run.diverged_at:,} "
            "rounds left."
        )
    if not run.experiment.keeps_list:
        notices.append(
            f"{run.experiment.method} keeps one model and holds no vote, so there are no votes, no validation "
            "losses and no lineage to draw."
        )
    return notices


def run_commands(run: RunRecords) -> list[tuple[str, str]]:
    """How to repeat a run."""
    config = run.directory.path / "experiment.toml"
    return [
        ("The same settings on any machine:", repeat_command(run.experiment)),
        ("From this run's own file:", f"lidfl run --config {config} --out {run.directory.path}-again"),
    ]


def run_figures(run: RunRecords) -> list[Figure]:
    """The figures of a run; a single model has no votes and no lineage."""
    found = []
    keeps_list = run.experiment.keeps_list
    if run.tested:
        keys = LINES + (origin_keys(_tested_origins(run)) if keeps_list else ())
        panel = Panel(figures.accuracy(run))
        found.append(
            Figure("accuracy", "Test accuracy", captions.accuracy(run), (panel,), keys, wide=not keeps_list)
        )
    if keeps_list and lowest_losses(run.lines):
        panel = Panel(figures.loss(run))
        found.append(Figure("loss", "Validation loss", captions.loss(run), (panel,), wide=False))
    if keeps_list:
        found += [lineage_figure(run), votes_figure(run)]
    if smallest_margin(run.lines):
        panel = Panel(figures.margin(run), height=160)
        found.append(Figure("margin", "How close the votes were", captions.margin(run), (panel,)))
    panel = Panel(figures.phases(run), height=34 * len(run.seconds_by_phase()))
    return [*found, Figure("time", "Where the time went", captions.phases(run), (panel,))]


def _tested_origins(run: RunRecords) -> set[Any]:
    return {run.lineage.lives[int(model)].origin for line in run.tested for model in line["accuracy"]}


def lineage_figure(
    run: RunRecords, name: str = "lineage", title: str = "Lineage of the list", scene: str = ""
) -> Figure:
    """The family tree, above a strip of those voted out at birth."""
    tree = run.lineage
    panels = [Panel(figures.lineage(tree), height=figures.LINEAGE_HEIGHT)]
    if any(life.rejected for life in tree.born):
        panels.append(Panel(figures.rejected(tree), height=70))
    keys = origin_keys(life.origin for life in tree.lives.values())
    return Figure(name, title, captions.lineage(tree), tuple(panels), keys, scene=scene)


def votes_figure(run: RunRecords) -> Figure:
    """The votes of each round."""
    keys = origin_keys(life.origin for life in run.lineage.lives.values())
    return Figure(
        "votes", "Votes for each candidate", captions.votes(run), (Panel(figures.votes(run), height=200),), keys
    )


def sweep_page(
    title: str,
    runs: Sequence[Played],
    *,
    notices: Sequence[str] = (),
    traced: Sequence[RunRecords] = (),
) -> Page:
    """The report of many runs; of a few of them the lineage may be shown too."""
    chapters = scenes(runs)
    methods = list(dict.fromkeys(method for scene in chapters for method in scene.methods))
    drawn = best_methods(chapters, methods)
    several = len(chapters) > 1
    found: list[Figure | TableSection] = []
    for number, scene in enumerate(chapters, start=1):
        suffix = f"-{number}" if several else ""
        found += [*scene_figures(scene, drawn, suffix, several), scene_table(scene, suffix, several)]
    found += [lineage_figure(run, *_lineage_title(run, number)) for number, run in enumerate(traced, start=1)]
    return Page(
        title=title,
        lead=f"{captions.count(len(runs), 'run')}: {_contents(chapters, methods)}.",
        facts=sweep_facts(runs, chapters, methods),
        blocks=found,
        notices=list(notices),
        settings=shared_settings([run.experiment for run in runs]),
        settings_title="What all runs share",
        commands=sweep_commands(title),
        methods=list(figures.method_styles(drawn).values()),
        scenes=[scene.title for scene in chapters],
        groups=all_attacks(chapters),
        footer=footer(runs[0].summary),
    )


def sweep_commands(title: str) -> list[tuple[str, str]]:
    """How to repeat a sweep, if it is one of the paper's; an installed package may not have these."""
    try:
        known = title in names()
    except LidflError:
        return []
    return [("Every run, with the paper's numbers beside ours:", f"lidfl reproduce {title}")] if known else []


def _lineage_title(run: RunRecords, number: int) -> tuple[str, str]:
    return f"lineage-{number}", f"Lineage of the list: {run.experiment.name}, seed {run.experiment.seed}"


def _contents(chapters: Sequence[Scene], methods: Sequence[str]) -> str:
    seeds = {run.experiment.seed for scene in chapters for run in scene.runs}
    parts = [captions.count(len(methods), "method"), captions.count(len(all_attacks(chapters)), "attack")]
    where = (
        captions.listed([scene.title for scene in chapters]) if len(chapters) <= 4 else f"{len(chapters)} settings"
    )
    return f"{captions.listed([*parts, captions.count(len(seeds), 'seed')])}, on {where}"


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


def scene_figures(scene: Scene, drawn: Sequence[str], suffix: str, several: bool) -> list[Figure]:
    """The curves and the heat map of one chapter."""
    here = [method for method in scene.methods if method in drawn]
    if not here:
        return []
    tops = [c.mean + c.deviation for c in scene.grid.cells.values()]
    tops += [value for run in scene.runs for _, value in run.curve]
    highest = figures.accuracy_top(tops)
    panels = tuple(
        Panel(figures.curves(scene, attack, drawn, highest), attack, 170, attack) for attack in scene.attacks
    )
    where = f" – {scene.title}" if several else ""
    heat = Panel(figures.heat_map(scene, here), height=34 * len(here))
    return [
        Figure(
            f"curves{suffix}",
            f"Accuracy over rounds{where}",
            captions.curves(scene, scene.methods, here),
            panels,
            small=len(panels) > 1,
            scene=scene.title,
        ),
        Figure(
            f"heatmap{suffix}",
            f"Method against attack{where}",
            captions.heat_map(scene, here),
            (heat,),
            wide=len(scene.attacks) > FEW_ATTACKS,
            scene=scene.title,
        ),
    ]


def scene_table(scene: Scene, suffix: str, several: bool) -> TableSection:
    """The table of one chapter."""
    where = f" – {scene.title}" if several else ""
    name = f"table{suffix}-{file_name(*scene.title.replace(',', '').split())}"
    title = f"Test accuracy, mean ± deviation over seeds{where}"
    return TableSection(title, name, scene.grid, scene.title, wide=len(scene.attacks) > FEW_ATTACKS)


def sweep_facts(runs: Sequence[Played], chapters: Sequence[Scene], methods: Sequence[str]) -> list[Fact]:
    """The numbers at the top of a sweep's page."""
    attacks = all_attacks(chapters)
    fractions = sorted({run.experiment.byzantine_fraction for run in runs})
    counted = [(len(runs), "finished run"), (len(methods), "method"), (len(attacks), "attack")]
    facts = [Fact(f"{number:,}", noun if number == 1 else f"{noun}s") for number, noun in counted]
    facts.append(Fact(", ".join(percent(fraction) for fraction in fractions), "of the clients are Byzantine"))
    hardest = chapters[-1]
    value, method = max((captions.worst_case(hardest, method)[0], method) for method in hardest.methods)
    where = f", {hardest.title}" if len(chapters) > 1 else ""
    return [*facts, Fact(f"{value:.3f}", f"under its worst attack: {method}{where}")]


def shared_settings(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """The settings that are the same in all runs."""
    first = asdict(experiments[0])
    return {name: value for name, value in first.items() if all(getattr(e, name) == value for e in experiments)}
