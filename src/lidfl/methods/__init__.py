"""Methods, and what they are made of: one function each.

| module | what it holds |
|---|---|
| `method` | what a method is, and the ones that there are |
| `rivals` | methods that others have proposed |
| `proposals` | how candidates are made |
| `aggregators`, `medians` | from many updates to one, or to groups |
| `preaggregators`, `pipelines` | what is done to updates before, and the whole: `nnm|krum` |
| `elections` | which candidates stay |
"""
