"""From figures and tables to one HTML page, and to the files that a paper takes."""

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any

import altair as alt
import jinja2
import vl_convert

from lidfl.files import write_atomically
from lidfl.report.figures.base import Figure, Key, Panel
from lidfl.settings.experiment import Experiment
from lidfl.studies import formats
from lidfl.studies.tables import Grid

INK = "currentColor"
"""Text takes the page's colour, so that charts follow it into dark mode."""

PAPER_WIDTH, SMALL_WIDTH, SMALL_HEIGHT = 560, 200, 150
OWN = {"name", "out"}
"""Settings of which a repeated run has its own."""


@dataclass(frozen=True)
class Fact:
    """A number at the top of the page."""

    value: str
    what: str


@dataclass(frozen=True)
class TableSection:
    """A table with its downloads."""

    title: str
    name: str
    grid: Grid
    scene: str = ""
    wide: bool = True

    @property
    def header(self) -> list[str]:
        """What stands above its columns."""
        return formats.header(self.grid, costs=True)

    @property
    def notes(self) -> str:
        """What its numbers are."""
        text = "; ".join(formats.notes(self.grid, costs=True))
        return f"{text[0].upper()}{text[1:]}."

    def lines(self, row: str, column: str) -> list[str]:
        """A cell: its value, and below it how far that is from the reference."""
        return formats.cell_lines(self.grid, self.grid.cell(row, column))

    def beside(self, row: str) -> list[str]:
        """What stands beside the cells of a row: what accuracy hides, and costs."""
        return formats.beside(self.grid, row, costs=True)

    @property
    def best(self) -> dict[str, float]:
        """The highest mean of each column."""
        cells = {column: [self.grid.cell(row, column) for row in self.grid.rows] for column in self.grid.columns}
        return {column: max(cell.mean for cell in found if cell.values) for column, found in cells.items()}

    @property
    def csv(self) -> str:
        """The address of its CSV."""
        return data_address("text/csv", formats.as_csv(self.grid, costs=True))

    @property
    def latex(self) -> str:
        """The address of its LaTeX."""
        return data_address("application/x-tex", formats.as_latex(self.grid, costs=True))


@dataclass(frozen=True)
class Page:
    """All that a report says."""

    title: str
    lead: str
    facts: list[Fact]
    blocks: list[Figure | TableSection]
    """Figures and tables, in the order of the page."""
    notices: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    settings_title: str = "Settings"
    commands: list[tuple[str, str]] = field(default_factory=list)
    """What a command does, and the command."""
    methods: list[Key] = field(default_factory=list)
    """The legend of a sweep, whose entries switch methods on and off."""
    scenes: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    """Chapters and attacks that a reader may see alone."""
    footer: str = ""

    @property
    def figures(self) -> list[Figure]:
        """Its figures alone."""
        return [block for block in self.blocks if isinstance(block, Figure)]


def data_address(kind: str, text: str) -> str:
    """An address that holds a file itself."""
    return f"data:{kind};base64,{b64encode(text.encode()).decode()}"


def write_page(page: Page, place: Path) -> None:
    """Write a page to a file."""
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, render(page).encode())


def render(page: Page) -> str:
    """The page as HTML that needs nothing else: the script that draws is in it, once."""
    beside = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=beside, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    specs = {
        f"{figure.name}-{n}": screen(panel) for figure in page.figures for n, panel in enumerate(figure.panels)
    }
    return environment.get_template("page.html").render(
        page=page, specs=script_safe(specs), theme=script_safe(SCREEN), drawing=drawing_script()
    )


@cache
def drawing_script() -> str:
    """The script that draws: vega, vega-lite and vega-embed in one."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def script_safe(content: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def screen(panel: Panel) -> dict[str, Any]:
    """A chart as wide as its place on the page."""
    spec: dict[str, Any] = panel.chart.properties(width="container", height=panel.height).to_dict()
    del spec["config"], spec["$schema"]  # the page has one theme for all
    return spec


DRAW: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "svg": lambda spec: vl_convert.vegalite_to_svg(spec).encode(),
    "pdf": vl_convert.vegalite_to_pdf,
    "png": lambda spec: vl_convert.vegalite_to_png(spec, scale=3),
}


def write_figures(figures: Sequence[Figure], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write each figure as files for a paper, in every format."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in figures:
        spec = paper(figure)
        for form in formats:
            path = folder / f"{figure.name}.{form}"
            write_atomically(path, DRAW[form](spec))
            written.append(path)
    return written


def paper(figure: Figure) -> dict[str, Any]:
    """A figure as one picture with its legend, black on white."""
    width = SMALL_WIDTH if figure.small else PAPER_WIDTH
    charts = []
    for panel in figure.panels:
        height = SMALL_HEIGHT if figure.small else panel.height
        chart = panel.chart.properties(width=width, height=height)
        charts.append(chart.properties(title=panel.title) if panel.title else chart)
    across = 2 if len(charts) == 4 else 3
    whole = alt.concat(*charts, columns=across) if figure.small else alt.vconcat(*charts)
    spec: dict[str, Any] = (whole if len(charts) > 1 else charts[0]).to_dict()
    return visible(spec) | {"config": PAPER}


def visible(spec: dict[str, Any]) -> dict[str, Any]:
    """A picture without the invisible layers that readers point at: on paper they are of no use, and large."""
    for part in (spec, *spec.get("concat", []), *spec.get("vconcat", [])):
        if "layer" in part:
            part["layer"] = [layer for layer in part["layer"] if layer["mark"].get("opacity") != 0]
    return spec


def theme(ink: str, **more: Any) -> dict[str, Any]:
    """How charts look."""
    faint = {"gridColor": ink, "gridOpacity": 0.12, "domainColor": ink, "domainOpacity": 0.4, "tickColor": ink}
    text = {
        "labelColor": ink,
        "titleColor": ink,
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 12,
    }
    return {
        "font": "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif",
        "background": None,
        "view": {"stroke": None},
        "axis": faint | text | {"tickOpacity": 0.4, "labelOverlap": True, "labelSeparation": 6},
        "axisY": {"minExtent": 44, "tickCount": 5},
        "title": {"color": ink, "fontWeight": "normal", "fontSize": 12},
        "line": {"color": ink},
        "text": {"color": ink},
        "rule": {"color": ink},
    } | more


SCREEN = theme(INK, legend={"disable": True})
PAPER = theme(
    "black",
    background="white",
    font="Helvetica, Arial, sans-serif",
    legend={"orient": "top", "labelLimit": 300, "symbolStrokeWidth": 2, "symbolOpacity": 1, "columns": 4},
)


def repeat_command(experiment: Experiment) -> str:
    """The shortest `lidfl run` with the same settings; it writes to a place of its own."""
    needed = {name: value for name, value in asdict(experiment).items() if name not in OWN}
    for name in list(needed):
        fewer = {other: value for other, value in needed.items() if other != name}
        needed = fewer if _means(fewer, experiment) else needed
    flags = [f"--{name.replace('_', '-')} {quote(str(value))}" for name, value in needed.items()]
    return " ".join(["lidfl run", *flags])


def _means(settings: dict[str, Any], experiment: Experiment) -> bool:
    """Whether settings, once filled in, are those of an experiment; nothing that they name is looked up."""
    return set(Experiment.unchecked(settings).differences(experiment)) <= OWN
