"""Speed beside the plain loop and beside peers, in one run."""
