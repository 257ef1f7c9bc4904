"""`lidfl demo`: the method beside the usual one, in seconds."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lidfl.cli.display import shown
from lidfl.settings.experiment import Experiment


@dataclass
class Demo:
    """FedAvg and LiD-FL on the embedded digits with 60 % of the clients Byzantine, side by side."""

    out: Path = Path("runs")
    """Where the two run directories go."""

    def __call__(self) -> None:
        """Run both, print the table and write their report."""
        from lidfl.report import write_report
        from lidfl.simulation.simulator import run

        console = Console()
        table = Table("method", "test accuracy", "deployed", "seconds", "run directory")
        places = []
        for method in ["fedavg", "lidfl"]:
            out = str(self.out / f"demo-{method}")
            experiment = Experiment(name=f"demo-{method}", method=method, attack="sign_flip", out=out)
            with shown(experiment) as observe:
                summary = run(experiment, overwrite=True, observe=observe)
            accuracies = [f"{summary[key]:.3f}" for key in ("test_accuracy", "deployed_accuracy")]
            table.add_row(method, *accuracies, f"{summary['seconds']:.1f}", out)
            places.append(Path(out))
        console.print(table)
        page, *_ = write_report(places, out=self.out / "demo.html")
        console.print(f"report: {page}", highlight=False, soft_wrap=True)
