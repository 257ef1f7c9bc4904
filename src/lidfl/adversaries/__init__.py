"""What Byzantine clients do: attacks on updates, attacks on votes, and what voters who collude can reach.

Only the simulator and test nodes know of these; the server's side does not.
"""
