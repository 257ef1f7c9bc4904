"""The paper's experiments as sweep files, and ours on its theorem."""
