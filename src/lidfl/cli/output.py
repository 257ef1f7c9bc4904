"""What a command writes for programs, where it would print a table for people."""

import json
import math
import sys
from collections.abc import Mapping
from typing import Any


def write_json(content: object) -> None:
    """Write something to standard output as JSON; a number that is none or infinite becomes null."""
    sys.stdout.write(json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
