"""Answers a server's requests in process: the simulator in three, training, voting and testing."""
