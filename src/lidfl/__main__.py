"""The `lidfl` command, and `python -m lidfl`: it loads the rest where Ctrl-C already means to stop quietly."""

import os
import sys


def main() -> None:
    """Run the command that was typed.

    Threads that wait for each other sleep meanwhile, unless the user says otherwise: those that spin make small
    work crawl on a busy machine. It has to be said before torch is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from lidfl.cli.main import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
