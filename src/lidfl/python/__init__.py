"""lidfl from Python: what `lidfl.run` shows while it goes, and the `Run` that it returns.

| module | what it holds |
|---|---|
| `running` | `run`, with progress and callbacks |
| `showing` | progress in a terminal and in notebooks |
| `result` | a finished run: summary, records, models, report, plot |
| `drawing` | its chart, and its report inside a notebook |
"""
