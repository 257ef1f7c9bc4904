"""`lidfl pick`: what a client does at the end."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console
from rich.table import Table

from lidfl.cli.output import write_json
from lidfl.errors import LidflError

if TYPE_CHECKING:
    from lidfl.runs.picking import Choice


@dataclass
class Pick:
    """Choose a model from a finished run's list on one client's own data, and write it."""

    run: tyro.conf.Positional[Path]
    """The run directory."""
    dataset: str | None = None
    """Data to judge with (default: that of the run); npz:path is your own."""
    client: int | None = None
    """Whose share of the data; left out, all of --dataset is yours."""
    app: Path | None = None
    """The Flower app whose run this is: judge with the data of its node --client."""
    deploy: str | None = None
    """What to make of the list (default: as the run says): best, average, soup, tuned, alike, joined."""
    out: Path | None = None
    """File to write the chosen model to (default: in the run directory)."""
    json: bool = False
    """Write it for programs."""

    def __call__(self) -> None:
        """Judge the list and print how it looks to the client."""
        choice = self._choice()
        if self.json:
            write_json(as_dict(choice))
        else:
            self._print(choice)

    def _print(self, choice: "Choice") -> None:
        table = Table("model", "validation loss", "accuracy", "")
        for position, model in enumerate(choice.ids):
            mark = "← chosen" if position == choice.position else ""
            numbers = (choice.losses[position], choice.accuracies[position])
            table.add_row(str(model), *("–" if math.isnan(n) else f"{n:.3f}" for n in numbers), mark)
        console = Console()
        console.print(table)
        if choice.position is None:
            console.print(f"chosen: a model made from the list, accuracy {choice.accuracy:.3f}", highlight=False)
        console.print(f"written to {choice.path}", highlight=False, soft_wrap=True)

    def _choice(self) -> "Choice":
        from lidfl.runs.nearby import require_run

        require_run(self.run)  # before anything takes long
        if self.app is None:
            from lidfl.runs.picking import pick

            return pick(self.run, dataset=self.dataset, client=self.client, out=self.out, deploy=self.deploy)
        from lidfl.flower import require_flower

        require_flower()
        from lidfl.flower.apps import pick_from, read_app

        if self.client is None or self.dataset:
            raise LidflError("--app goes with --client, the number of a node, and without --dataset")
        return pick_from(self.run, read_app(self.app, {}), client=self.client, out=self.out, deploy=self.deploy)


def as_dict(choice: "Choice") -> dict[str, Any]:
    """How the list looks to the client, and what it takes."""
    columns = zip(choice.ids, choice.losses, choice.accuracies, strict=True)
    models = [dict(model=model, validation_loss=loss, accuracy=accuracy) for model, loss, accuracy in columns]
    chosen = None if choice.position is None else choice.ids[choice.position]
    return dict(models=models, chosen=chosen, accuracy=choice.accuracy, file=str(choice.path))
