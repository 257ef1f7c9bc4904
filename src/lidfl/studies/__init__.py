"""Many runs: sweeps and how they are run, tables of results, results that are kept, and the paper's tables."""
