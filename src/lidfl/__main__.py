"""`python -m lidfl` is the `lidfl` command."""

from lidfl.cli.main import main

main()
