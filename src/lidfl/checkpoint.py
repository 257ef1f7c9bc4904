"""The state between two rounds, on disk and back.

All randomness is derived from its place, so the list and the number of rounds done are all there is to keep.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save

from lidfl.errors import LidflError
from lidfl.protocol import ModelList


@dataclass(frozen=True)
class State:
    """What stands between two rounds."""

    rounds_done: int
    models: ModelList


def save_state(path: Path, state: State) -> None:
    """Write a state so that a crash at any moment leaves either the old file or the new one."""
    models = state.models
    numbers = {"rounds_done": state.rounds_done, "next_id": models.next_id}
    lists = {"ids": models.ids, "parents": models.parents, "ages": models.ages}
    metadata = {"state": json.dumps(numbers | lists)}
    write_atomically(path, save({"parameters": models.parameters.cpu().contiguous()}, metadata))


def load_state(path: Path, device: str = "cpu") -> State:
    """Read a state back, bit for bit."""
    try:
        content = path.read_bytes()  # once: safe_open opens it twice, and a run may replace it in between
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        saved = json.loads(header["__metadata__"]["state"])
        parameters = load(content)["parameters"].to(device)
    except (SafetensorError, KeyError, TypeError, OSError, ValueError) as error:
        raise LidflError(f"cannot read the list in {path}: {error}") from None
    ids, ages, parents = tuple(saved["ids"]), tuple(saved["ages"]), tuple(map(tuple, saved["parents"]))
    return State(saved["rounds_done"], ModelList(parameters, ids, parents, ages, saved["next_id"]))


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name, force it to disk and move it into place."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
