"""What the results of `make test-federation` speak of: a hash over the code of real federations and its tests."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/lidfl/flower", "src/lidfl/protocol", "src/lidfl/runs", "tests/flower")


def fingerprint() -> str:
    """The hash of all Python files of these folders."""
    found = hashlib.sha256()
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    print(fingerprint())  # noqa: T201
