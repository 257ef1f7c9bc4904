"""Pin everything that `make setup` installs, with the hashes of its files: requirements.lock.

    make lock

One file for Linux and macOS, Python 3.11 to 3.13. Left out are torch, which constraints.txt pins, and what its CUDA
build brings along: which build is right depends on the machine, and each has hashes of its own.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
HEADER = "# Written by `make lock` from pyproject.toml; CONTRIBUTING.md says what is left out, and why.\n"
OF_THE_MACHINE = ("cuda-", "nvidia-", "torch", "triton")
"""How the names of what a torch build brings along begin."""

COMMAND = [
    *("uv", "pip", "compile", "pyproject.toml", "--extra", "dev", "--constraint", "constraints.txt", "--universal"),
    *("--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"),
]


def lock() -> str:
    """The content of the file: a block for every package."""
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, check=True)
    blocks = re.split(r"\n(?=[a-z0-9])", done.stdout.strip())
    return HEADER + "".join(f"{block}\n" for block in blocks if not block.startswith(OF_THE_MACHINE))


if __name__ == "__main__":
    LOCK.write_text(lock())
