"""What is being run, in one line."""

from lidfl.settings.experiment import Experiment


def headline(experiment: Experiment) -> str:
    """One line that says what is being run."""
    attackers = f"{experiment.num_byzantine} of {experiment.num_clients} clients Byzantine"
    attacks = f"attack {experiment.attack}, votes {experiment.vote_attack}"
    size = f", list of {experiment.list_size}" if experiment.keeps_list else ""
    return f"{experiment.method} on {experiment.dataset}-{experiment.model}{size}: {attackers}, {attacks}"
