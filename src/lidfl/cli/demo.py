"""`lidfl demo`: the method beside the usual one, in seconds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lidfl.cli.display import shown
from lidfl.cli.output import write_json
from lidfl.settings.experiment import Experiment


@dataclass
class Demo:
    """FedAvg and LiD-FL on the embedded digits with 60 % of the clients Byzantine, side by side."""

    out: Path = Path("runs")
    """Where the two run directories go."""

    json: bool = False
    """Show nothing while it runs, and write the results for programs."""

    def __call__(self) -> None:
        """Run both, print the table and write their report."""
        from lidfl.report import write_report

        results = [self._one(method) for method in ("fedavg", "lidfl")]
        page, *_ = write_report([Path(result["run"]) for result in results], out=self.out / "demo.html")
        if self.json:
            write_json(dict(results=results, report=str(page)))
            return
        console = Console()
        table = Table("method", "deployed", "best model", "seconds", "run directory")
        for result in results:
            accuracies = [f"{result[key]:.3f}" for key in ("deployed_accuracy", "test_accuracy")]
            table.add_row(result["method"], *accuracies, f"{result['seconds']:.1f}", result["run"])
        console.print(table)
        console.print(f"report: {page}", highlight=False, soft_wrap=True)

    def _one(self, method: str) -> dict[str, Any]:
        from lidfl.simulation.simulator import run

        out = str(self.out / f"demo-{method}")
        experiment = Experiment(name=f"demo-{method}", method=method, attack="sign_flip", out=out)
        with shown(experiment, quiet=self.json) as observe:
            summary = run(experiment, overwrite=True, observe=observe)
        kept = {key: summary[key] for key in ("deployed_accuracy", "test_accuracy", "seconds")}
        return dict(method=method, **kept, run=out)
