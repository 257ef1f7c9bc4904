"""The figures of a report, one file each: what of the data is drawn, the chart, and the caption.

| module | what it shows |
|---|---|
| `accuracy`, `loss` | how good the models of a run became |
| `lineage`, `rejected` | the family tree of a list, and the models that were voted out at birth |
| `votes`, `margin` | who got votes, and how close the votes were |
| `phases` | where the time went |
| `curves`, `heat_map` | a sweep: accuracy over rounds, and each method under each attack |
| `base`, `methods` | what all figures share, and what those of a sweep share |

No chart says how wide it is or what colour its text has: the page and the paper each add their own.
"""
