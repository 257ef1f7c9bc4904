"""`lidfl completion`: the shell completes commands and options."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro


@dataclass
class Completion:
    """Print a script that lets your shell complete lidfl's commands and options with the Tab key.

    bash: lidfl completion bash > ~/.local/share/bash-completion/completions/lidfl

    zsh: lidfl completion zsh > ~/.zfunc/_lidfl, with ~/.zfunc in $fpath
    """

    shell: Annotated[Literal["bash", "zsh", "tcsh"], tyro.conf.Positional]
    """Which shell."""

    def __call__(self) -> None:
        """Print the script."""
        from lidfl.cli.main import all_commands

        all_commands(["--tyro-print-completion", self.shell])
