"""`python -m lidfl` is the `lidfl` command."""

from lidfl.cli import main

main()
