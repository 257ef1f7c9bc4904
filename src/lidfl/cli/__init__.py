"""The command line: `main` finds the command, and each command is a file of its own that parses and delegates."""
