"""A whole federation on this machine: keys, a SuperLink, SuperNodes, one run, and nothing left behind.

| module | what it holds |
|---|---|
| `playing` | plays an experiment, or an app of the user's own, from the start to the summary; who attacks |
| `federation` | starts the SuperLink and the SuperNodes, and submits a run |
| `processes` | processes that are found and ended however this one ends |
| `app`, `shares` | an experiment as a Flower app, and each node's share of its data |
| `audit` | somebody who holds all data tells how good the list is |

Here, and only here in `lidfl.flower`, it is known who is Byzantine: who starts the liars knows them.
"""
