"""A run, whoever answers it: its record, its directory, the state between two rounds, the loop over rounds.

| module | what it holds |
|---|---|
| `record` | what is known of a round, and its line in a file |
| `state` | what stands between two rounds, on disk and back |
| `directory` | what is in a run directory, and who may write to it |
| `resuming` | with which settings a run may go on |
| `server` | which round is played, with which rules |
| `loop` | all rounds of a run |
| `clients` | what a simulation can tell of each client |
| `classes` | what accuracy hides where classes are unequal |
| `costs` | what rounds cost: gradient steps, bytes, ballots |
| `summary` | what a run was, and what it cost |
| `stopwatch` | where the time goes |
| `picking` | what a client does at the end |
"""
