"""The C++ engine, compiled on this machine at first use and kept in the user's cache."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

SOURCES = Path(__file__).parent
MAIN = "engine.cpp"
FLAGS: tuple[str, ...] = (
    *("-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"),
    *("-fno-math-errno", "-fno-trapping-math"),  # NaN and infinities keep their meaning
)
if platform.machine() in {"x86_64", "AMD64"}:
    # For some processors GCC splits multiply-adds in some loops and not in others: bits would depend on the batch.
    FLAGS = (*FLAGS, "--param=avoid-fma-max-bits=0")
COMPILERS = ("c++", "g++", "clang++")
PATIENCE = 300
"""Seconds that the compiler may take; it needs about six."""


class NativeUnavailable(Exception):
    """There is no compiled engine here; the reason is one line."""


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The compiled engine; NativeUnavailable where there is no compiler or it fails."""
    try:
        return _declared(ctypes.CDLL(str(built())))
    except (OSError, subprocess.SubprocessError) as error:
        raise NativeUnavailable(f"the C++ engine cannot be built: {_reason(error)}") from error


def is_available() -> bool:
    """Whether the engine can be compiled and loaded."""
    try:
        library()
    except NativeUnavailable:
        return False
    return True


def built() -> Path:
    """The compiled file, for this source, compiler and processor."""
    command = [*_compiler(), *FLAGS]
    version = subprocess.run([*_compiler(), "--version"], capture_output=True, check=True, timeout=PATIENCE).stdout
    parts = [*_source_texts(), " ".join(command).encode(), version, _processor().encode()]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]
    return next(filter(_is_whole, sorted(_cache().glob(f"native-{key}-*.so"))), None) or _compile(command, key)


def _is_whole(target: Path) -> bool:
    """Whether a file holds what its name says: to load one that was cut short would kill the process."""
    try:
        return target.stem.endswith(f"-{_digest(target)}")
    except OSError:
        return False


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:24]


def _compile(command: list[str], key: str) -> Path:
    """Compile to a file of its own, which then takes its name: two processes may do so at once."""
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as directory:
        output = Path(directory) / "native.so"
        arguments = [*command, str(SOURCES / MAIN), "-o", str(output)]
        subprocess.run(arguments, capture_output=True, check=True, timeout=PATIENCE)
        target = cache / f"native-{key}-{_digest(output)}.so"
        os.replace(output, target)
    return target


def _compiler() -> list[str]:
    """$CXX, else the first compiler there is."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen:
        return chosen
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise NativeUnavailable("the C++ engine needs a compiler: there is no c++, g++ or clang++ here")


def _source_texts() -> list[bytes]:
    """Every file that the compiler reads, with its name."""
    files = sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")])
    return [file.name.encode() + file.read_bytes() for file in files]


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(wanted)))


def _cache() -> Path:
    """Where compiled files lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lidfl"


def _reason(error: Exception) -> str:
    """The first line that says why."""
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        lines: list[str] = error.stderr.decode(errors="replace").splitlines()
        return next((line for line in lines if "error" in line), lines[0])
    return str(error)


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions."""
    pointer, number, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    loaded.lidfl_parameters.argtypes = [pointer]
    loaded.lidfl_train.argtypes = [
        *[pointer] * 5,  # shape, images, labels, starts, rows
        *[number] * 3,  # jobs, steps, batch
        *[real] * 2,  # learning rate, momentum
        *(number, pointer, pointer),  # threads, updates, reliable
    ]
    loaded.lidfl_logits.argtypes = [pointer, pointer, pointer, number, number, pointer]
    loaded.lidfl_softmax_classes.argtypes = []
    loaded.lidfl_train_softmax.argtypes = [
        *[number] * 2,  # inputs, classes
        *[pointer] * 7,  # offsets, features, deviations, background, labels, starts, rows
        *[number] * 3,  # jobs, steps, batch
        *[real] * 2,  # learning rate, momentum
        *(number, pointer, pointer),  # threads, updates, reliable
    ]
    loaded.lidfl_logits_softmax.argtypes = [*[number] * 2, *[pointer] * 5, *[number] * 2, pointer]
    return loaded
