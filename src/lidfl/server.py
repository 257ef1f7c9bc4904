"""The server's side of an experiment: which round is played, with which rules.

It is the same for a simulation and for a real federation, and knows no more than a server can.
"""

from lidfl.config import ORACLE, Experiment
from lidfl.elections import SINGLE_CHOICE, election
from lidfl.protocol import ModelList, Round, Rules, lid_round, resolve_proposals, single_round
from lidfl.seeds import rng_for
from lidfl.types import Parameters


class Server:
    """Plays the rounds of an experiment; its only state is the list that it is handed."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.clients = range(experiment.num_clients)
        self.rules = rules_of(experiment)

    def start(self, parameters: Parameters) -> ModelList:
        """The initial list: copies of one initialised model."""
        return ModelList.initial(parameters, self.experiment.list_size)

    def round(self, models: ModelList, round_index: int) -> Round:
        """The generator of one round."""
        rng = rng_for(self.experiment.seed, "server", round_index)
        play = lid_round if self.experiment.keeps_list else single_round
        return play(models, round_index, self.clients, rng, self.rules)


def rules_of(experiment: Experiment) -> Rules:
    """What the settings say about a round."""
    single = "fedavg" if experiment.method == ORACLE else experiment.method
    all_train = experiment.compares_updates or not experiment.keeps_list
    workers = experiment.workers or (experiment.num_clients if all_train else experiment.candidates)
    return Rules(
        elect=election.resolve(experiment.election),
        ranked=experiment.election not in SINGLE_CHOICE,
        proposals=resolve_proposals(experiment.proposal if experiment.keeps_list else single),
        candidates=experiment.candidates,
        every_group=experiment.propose == "all",
        favourite_parents=experiment.parent == "favourite",
        same_parent=experiment.compares_updates,
        workers=workers,
        voters=experiment.voters or None,
        num_honest=max(1, workers * experiment.num_honest // experiment.num_clients),
    )
