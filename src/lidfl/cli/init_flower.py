"""`lidfl init-flower`: a Flower app to start from."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console


@dataclass
class InitFlower:
    """Write a Flower app that trains on digits, to start yours from."""

    folder: tyro.conf.Positional[Path]
    """Where to; a new folder."""

    def __call__(self) -> None:
        """Write the app and say how to run it."""
        from lidfl.flower.template import write_app

        write_app(self.folder)
        Console().print(f"written to {self.folder}; its README.md says how to run it", soft_wrap=True)
