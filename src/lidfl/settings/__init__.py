"""The settings of a run, their defaults and their checks; and the world that they stand for."""
