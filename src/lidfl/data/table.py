"""Anyone's own table: a CSV or Parquet file with one column to predict."""

import csv
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lidfl.data.base import DATA_VARIABLE, Dataset, caution_about_classes, dataset, locate, refuse_bomb
from lidfl.errors import LidflError

log = logging.getLogger(__name__)

Columns: TypeAlias = dict[str, list[Any]]
"""Values by the name of their column, in order."""

MAX_WORDS = 100
"""A column of more different words is no category but a name or a text."""

BYTES = 8
"""At least so many make a value, once it is read; a few of them in a file can stand for a column of zeros."""


@dataset
def table(*, path: str, target: str = "") -> Dataset:
    """Your own CSV or Parquet file: columns of numbers or words, and the class in `target`, by default the last.

    The first line of a CSV names the columns. Each word of a column becomes a column of 0 and 1. Classes may be
    numbers or words, and are numbered in their order; rows become images of shape (1, 1, columns).
    """
    file = locate(path)
    if not file.is_file():
        raise LidflError(f"no file {file}; write table:path/to/file.csv or set {DATA_VARIABLE} to its directory")
    columns = _reader(file)(file)
    if not columns or not all(columns.values()):
        raise LidflError(f"{file} has no rows; its first line names the columns, and the rows follow")
    target = target or list(columns)[-1]
    if target not in columns:
        raise LidflError(f"{file} has no column '{target}', but {', '.join(columns)}; set table:path,target=…")
    labels = _classes(columns.pop(target), target, file)
    if not columns:
        raise LidflError(f"{file} has no column but '{target}'; there is nothing to predict it from")
    features = np.concatenate([_features(name, values, file) for name, values in columns.items()], axis=1)
    return Dataset(features[:, np.newaxis, np.newaxis], labels, int(labels.max()) + 1, "pixel")


def _reader(file: Path) -> Callable[[Path], Columns]:
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    if file.suffix.lower() not in readers:
        raise LidflError(f"{file} is neither .csv nor .parquet; save the table as one of them")
    return readers[file.suffix.lower()]


def _read_csv(file: Path) -> Columns:
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            lines = [line for line in csv.reader(stream) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LidflError(f"{file} is not readable as CSV ({error}); save it with commas, in UTF-8") from None
    names = lines[0] if lines else []
    if len(set(names)) < len(names):
        raise LidflError(f"{file} names a column twice; give each its own name in the first line")
    for number, line in enumerate(lines):
        if len(line) != len(names):
            wrong = f"row {number} of {file} has {len(line)} values for {len(names)} columns"
            raise LidflError(f"{wrong}; mend the row, or quote values with commas")
    columns = {name: [line[place] for line in lines[1:]] for place, name in enumerate(names)}
    if _looks_like_data(columns):
        log.warning(
            "%s: its first line looks like data, and is taken for the names of its columns; add those", file
        )
    return columns


def _looks_like_data(columns: Columns) -> bool:
    """Whether wherever there are numbers below, there is one above too, and these do not just count columns."""
    above = {place: name for place, (name, below) in enumerate(columns.items()) if _as_numbers(below) is not None}
    counts = all(name in (str(place), str(place + 1)) for place, name in above.items())
    return _as_numbers([*above.values()]) is not None and not counts


def _read_parquet(file: Path) -> Columns:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise LidflError(f"to read {file} install pyarrow (pip install pyarrow), or save it as CSV") from None
    try:
        shape = parquet.read_metadata(file)
        refuse_bomb(BYTES * shape.num_rows * shape.num_columns, file.stat().st_size, file)
        columns: Columns = parquet.read_table(file).to_pydict()
    except (OSError, ArrowException, ValueError) as error:
        raise LidflError(f"{file} is not a readable Parquet file ({str(error).splitlines()[0]})") from None
    return columns


def _classes(values: list[Any], name: str, file: Path) -> NDArray[np.int64]:
    """Classes numbered from 0, numbers in the order of their size and words in that of the alphabet."""
    _refuse_gaps(values, name, file)
    numbers = _as_numbers(values)
    words = np.array([str(value) for value in values])
    labels = np.unique(words if numbers is None else numbers, return_inverse=True)[1].astype(np.int64)
    caution_about_classes(int(labels.max()) + 1, len(labels), f"column '{name}' of {file}")
    return labels


def _features(name: str, values: list[Any], file: Path) -> NDArray[np.float32]:
    """A column of numbers as it is; a column of words as one of 0 and 1 for each word."""
    _refuse_gaps(values, name, file)
    numbers = _as_numbers(values)
    if numbers is not None:
        with np.errstate(over="ignore"):
            narrow = numbers.astype(np.float32)
        if not np.isfinite(narrow).all():
            raise LidflError(f"column '{name}' of {file} holds NaN, infinite or huge values; remove or clip them")
        return narrow[:, np.newaxis]
    words, places = np.unique([str(value) for value in values], return_inverse=True)
    if len(words) > MAX_WORDS:
        raise LidflError(f"column '{name}' of {file} holds {len(words)} different words; leave it out or number it")
    return np.eye(len(words), dtype=np.float32)[places]


def _as_numbers(values: list[Any]) -> NDArray[np.float64] | None:
    try:
        return np.array([float(value) for value in values])
    except (OverflowError, TypeError, ValueError):
        return None


def _refuse_gaps(values: list[Any], name: str, file: Path) -> None:
    gaps = [row for row, value in enumerate(values, 1) if value is None or value == ""]
    if gaps:
        raise LidflError(f"column '{name}' of {file} is empty in row {gaps[0]}; fill the gap or leave the row out")
