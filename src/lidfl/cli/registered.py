"""`lidfl list`: everything that has a name."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from lidfl.adversaries.attacks import attack
from lidfl.adversaries.vote_attacks import vote_attack
from lidfl.cli.flags import PluginFlag
from lidfl.cli.output import write_json
from lidfl.data import dataset
from lidfl.data.partitions import partition
from lidfl.learning.models import model
from lidfl.methods.aggregators import aggregator
from lidfl.methods.elections import election
from lidfl.methods.method import rounds
from lidfl.methods.preaggregators import preaggregator
from lidfl.methods.proposals import proposal
from lidfl.plugins import load_recorded
from lidfl.registry import Registry

REGISTRIES: list[Registry[Any]] = [
    dataset,
    partition,
    model,
    rounds,
    aggregator,
    preaggregator,
    attack,
    vote_attack,
    election,
    proposal,
]


@dataclass
class ListRegistered:
    """Show every data set, partition, model, method, aggregator, attack and election, with its options."""

    plugin: PluginFlag = ()
    """A file of your own, whose rules are shown too; may be given again."""

    json: bool = False
    """Write it for programs."""

    def __call__(self) -> None:
        """Print a table of each kind."""
        load_recorded(self.plugin)
        if self.json:
            write_json({registry.kind: as_dicts(registry) for registry in REGISTRIES})
            return
        console = Console()
        for registry in REGISTRIES:
            console.print(table_of(registry, console.width))


def table_of(registry: Registry[Any], width: int) -> Table:
    """Everything of one kind. However many options there are, half the width is left to say what they belong to."""
    described = registry.describe()
    longest = max((len(name) for name, _, _ in described), default=0)
    table = Table("name", "options", "what it is", title=registry.kind, title_justify="left", expand=True)
    table.columns[0].no_wrap = True
    table.columns[1].max_width = max(16, (width - longest) // 3)
    table.columns[2].ratio = 1
    for row in described:
        table.add_row(*row)
    return table


def as_dicts(registry: Registry[Any]) -> list[dict[str, Any]]:
    """Everything of one kind: its name, its options with their defaults, and what it is."""
    described = registry.describe()
    return [dict(name=name, options=registry.options(name), what=what) for name, _, what in described]
