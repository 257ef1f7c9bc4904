"""The `lidfl` command, and `python -m lidfl`: it loads the rest where Ctrl-C already means to stop quietly."""

import sys


def main() -> None:
    """Run the command that was typed."""
    try:
        from lidfl.cli.main import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
