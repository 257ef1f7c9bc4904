"""Entry point of the `lidfl` command.

Nothing that takes long to load is imported before a command is known and its words are right: torch, scikit-learn,
altair and joblib wait until a command calls for them.
"""

import difflib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import tyro

from lidfl.cli.flags import as_flags
from lidfl.errors import LidflError, one_line, told
from lidfl.settings.experiment import FORMERLY

COMMANDS = {
    "run": "run.Run",
    "sweep": "sweep.SweepRuns",
    "table": "table.TableOfResults",
    "reproduce": "reproduce.Reproduce",
    "report": "report.Report",
    "pick": "pick.Pick",
    "plan": "plan.Plan",
    "list": "registered.ListRegistered",
    "demo": "demo.Demo",
    "federation": "federation.FederationUp",
    "server": "server.Server",
    "node": "node.Node",
    "init-flower": "init_flower.InitFlower",
    "completion": "completion.Completion",
}
"""Each command with its module and class in this room."""
DESCRIPTION = """Federated learning that survives a malicious majority.

`lidfl` alone shows what one can do next, `lidfl --version` which version this is, and `lidfl completion bash`
writes what makes the Tab key complete commands and options (zsh and tcsh too).

Exit codes: 0 done; 1 a fault of lidfl itself, with a traceback; 2 what you can mend, told in one line on standard
error; 130 stopped by Ctrl-C or asked to end, with nothing lost."""


def main() -> None:
    """Run the command that was typed; what the user can mend is told in one line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # being asked to end is like Ctrl-C: nothing is lost
    sys.path.insert(0, os.getcwd())  # so that a user's own package.module:function is found
    for stream in (sys.stdout, sys.stderr):  # a name may hold bytes that are no letters
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        parse(sys.argv[1:])()
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read has read enough, as in `lidfl list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        reason = reason_of(error)
        if reason is None:
            raise
        print(f"lidfl: {one_line(as_flags(reason))}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


def reason_of(error: Exception) -> str | None:
    """What a user can mend, in words: a slip, a file, too little memory; None for what is our mistake."""
    if isinstance(error, LidflError):
        return str(error)
    if isinstance(error, UnicodeEncodeError):
        return "there is what is no letter in what was typed; leave it out"
    if isinstance(error, OSError):
        return f"{told(error)}; mend that, or name another place"
    if isinstance(error, MemoryError) or "allocate memory" in str(error):  # the latter is torch's
        return "there is not enough memory for that; take fewer clients, models or steps, or smaller batches"
    return None


def parse(arguments: Sequence[str]) -> Callable[[], None]:
    """The command that words stand for, ready to be called."""
    refuse_old_flags(arguments)
    if any("\0" in argument for argument in arguments):
        raise LidflError("there is a NUL character in what was typed; leave it out")
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        parsed: Callable[[], None] = tyro.cli(command_class(name), args=arguments[1:], prog=f"lidfl {name}")
        return parsed
    if name in SAID_AT_ONCE:
        return SAID_AT_ONCE[name]
    if not name.startswith("-"):
        raise LidflError(f"there is no command '{name}'; {meant(name)}")
    return all_commands(arguments)


def all_commands(arguments: Sequence[str]) -> Callable[[], None]:
    """What words that name no command stand for: help, or the script by which a shell completes them all."""
    every = {known: command_class(known) for known in COMMANDS}
    parsed: Callable[[], None] = tyro.extras.subcommand_cli_from_dict(
        every, args=list(arguments), prog="lidfl", description=DESCRIPTION
    )
    return parsed


def command_class(name: str) -> Any:
    """The class of a command."""
    module, _, attribute = COMMANDS[name].partition(".")
    return getattr(import_module(f"lidfl.cli.{module}"), attribute)


def meant(name: str) -> str:
    """The command that was probably meant, or all there are."""
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"did you mean 'lidfl {close[0]}'?" if close else f"choose from {', '.join(COMMANDS)}"


def say_what_next() -> None:
    """Print what one can do next."""
    from lidfl.cli.guide import guide

    sys.stdout.write(f"{DESCRIPTION.splitlines()[0]} What next?\n\n{guide(Path())}")


def say_version() -> None:
    """Print which lidfl this is."""
    from importlib.metadata import version

    sys.stdout.write(f"lidfl {version('lidfl')}\n")


SAID_AT_ONCE = {"": say_what_next, "--version": say_version}


def refuse_old_flags(arguments: Sequence[str]) -> None:
    """Name the new flag to those who type an old one."""
    for argument in arguments:
        flag = argument.partition("=")[0]
        new = FORMERLY.get(flag.removeprefix("--").replace("-", "_"))
        if flag.startswith("--") and new:
            raise LidflError(f"{flag} is now called --{new.replace('_', '-')}; see lidfl {arguments[0]} --help")
