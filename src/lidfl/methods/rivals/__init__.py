"""Methods for a malicious majority, or for a clean set at the server, that others have proposed: one file each.

| module | what is kept | what it goes by |
|---|---|---|
| `ditto` | one model, and one of each client's own near it | any rule; a client's own data |
| `ifca` | several models | everyone trains its favourite; no vote |
| `basil` | a model for each client, on a ring | own loss picks among predecessors' models |
| `flcert` | a model for each small group | groups without attackers; a client picks |
| `optfil` | one model | two candidates and a vote |
| `baffle` | one model, and those before it | validators reject what moves oddly |
| `fltrust`, `fedgreed`, `zeno`, `semi_verified` | one model | the server's own clean images |

Each is the generator of a round. Where a paper judges by mini-batches of training data, a client's validation data
judges here, as everywhere; local training is that of the experiment.
"""

from lidfl.methods.rivals import (  # noqa: F401 - importing a method registers it
    baffle,
    basil,
    ditto,
    fedgreed,
    flcert,
    fltrust,
    ifca,
    optfil,
    semi_verified,
    zeno,
)
