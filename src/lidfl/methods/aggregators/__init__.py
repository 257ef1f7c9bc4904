"""Aggregators: from the updates of many clients to one update, or to several groups of clients.

| module | what it holds |
|---|---|
| `paper` | the registry; the rules of the paper and of its baselines |
| `coordinates` | each coordinate by itself: trimmed mean, MeaMed |
| `distances` | who is close to whom: Multi-Krum, Bulyan, MDA, MoNNA |
| `centres` | a centre and how far all are from it: geometric median, MCA, CGE |
| `spectra` | the direction in which updates differ most: CAF, SMEA, DnC |
| `suspicion` | what looks odd is left out or counts less: SignGuard, FLAME, FoolsGold |
| `limits` | how many bad updates each rule is made for, and what it costs |
| `blocks`, `covers` | what they compute with |

A rule takes f, the number of updates that may be bad, to be all but the honest ones; its option `f` says otherwise.
"""

from lidfl.methods.aggregators import (  # noqa: F401 - importing a family registers its rules
    centres,
    coordinates,
    distances,
    spectra,
    suspicion,
)
from lidfl.methods.aggregators.paper import (
    Groups,
    aggregator,
    cclip,
    cwm,
    fedavg,
    gm,
    krum,
    means_and_members,
    meb,
    nearest,
    norm,
    rknn,
    squared_distances,
)

__all__ = [
    "Groups",
    "aggregator",
    "cclip",
    "cwm",
    "fedavg",
    "gm",
    "krum",
    "means_and_members",
    "meb",
    "nearest",
    "norm",
    "rknn",
    "squared_distances",
]
