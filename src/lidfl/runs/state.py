"""The state between two rounds, on disk and back.

All randomness is derived from its place, so the list and the number of rounds done are all there is to keep.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from lidfl.errors import LidflError
from lidfl.files import fits, parse_json, tensor_file_notes, write_atomically
from lidfl.lazily import tensor_files
from lidfl.protocol import ModelList


@dataclass(frozen=True)
class State:
    """What stands between two rounds."""

    rounds_done: int
    models: ModelList
    skipped: int = 0
    """How many rounds so far too few clients answered; they were played again."""


def save_state(path: Path, state: State) -> None:
    """Write a state so that a crash at any moment leaves either the old file or the new one."""
    models = state.models
    numbers = {"rounds_done": state.rounds_done, "skipped": state.skipped, "next_id": models.next_id}
    lists = {"ids": models.ids, "parents": models.parents, "ages": models.ages, "standing": models.standing}
    metadata = {"state": json.dumps(numbers | lists)}
    tensors = {"parameters": models.parameters} | ({} if models.memory is None else {"memory": models.memory})
    held = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, tensor_files.save(held, metadata))


def load_state(path: Path, device: str = "cpu") -> State:
    """Read a state back, bit for bit."""
    try:
        with path.open("rb") as file:  # opened once: a run may replace it meanwhile
            saved = _header(file)
            file.seek(0)
            tensors = {name: held.to(device) for name, held in tensor_files.load(file.read()).items()}
        ids, ages, parents = tuple(saved["ids"]), tuple(saved["ages"]), tuple(map(tuple, saved["parents"]))
        standing = {int(voter): tuple(ballot) for voter, ballot in saved.get("standing", {}).items()}
        held = tensors["parameters"], ids, parents, ages, saved["next_id"], standing, tensors.get("memory")
        models = ModelList(*held)
        return checked(State(saved["rounds_done"], models, saved.get("skipped", 0)))
    except (SafetensorError, LookupError, TypeError, AttributeError, OSError, ValueError, RuntimeError) as error:
        raise _unreadable(path, error) from None


def checked(state: State) -> State:
    """A state that holds together; ValueError if it does not."""
    models = state.models
    lists = fits(models.ids, tuple[int, ...]) and fits(models.ages, tuple[int, ...])
    families = fits(models.parents, tuple[tuple[int, ...], ...]) and fits(
        models.standing, dict[int, tuple[int, ...]]
    )
    numbers = all(fits(n, int) and n >= 0 for n in (state.rounds_done, state.skipped, models.next_id))
    if not (lists and families and numbers):
        raise ValueError("its notes are damaged")
    rows = models.parameters
    if rows.ndim != 2 or not rows.is_floating_point() or rows.shape[1] == 0:
        raise ValueError("its models are damaged")
    if not len(rows) == len(models.ids) == len(models.ages) == len(models.parents) > 0:
        raise ValueError("its models are not as many as its notes say")
    if len({*models.ids}) < len(models.ids) or max(models.ids) >= models.next_id:
        raise ValueError("its models are numbered twice")
    return state


def rounds_done_in(path: Path) -> int:
    """How many rounds a saved state has behind it; the models are not read for that."""
    try:
        with path.open("rb") as file:
            return int(_header(file)["rounds_done"])
    except (KeyError, TypeError, AttributeError, OSError, OverflowError, ValueError) as error:
        raise _unreadable(path, error) from None


def _header(file: BinaryIO) -> dict[str, Any]:
    """All but the models."""
    state: dict[str, Any] = parse_json(tensor_file_notes(file)["state"])
    return state


def _unreadable(path: Path, error: Exception) -> LidflError:
    way_out = "return to an earlier state with --resume --from-round N, or start anew with --overwrite"
    return LidflError(f"cannot read the list in {path}: {error}; {way_out}")
