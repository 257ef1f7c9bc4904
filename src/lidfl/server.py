"""The server's side of an experiment: which round is played, with which rules.

It is the same for a simulation and for a real federation, and knows no more than a server can.
"""

from lidfl.aggregators import aggregator
from lidfl.config import Experiment
from lidfl.elections import election
from lidfl.protocol import ModelList, Round, lid_round, single_round
from lidfl.seeds import rng_for
from lidfl.types import Parameters


class Server:
    """Plays the rounds of an experiment; its only state is the list that it is handed."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.clients = range(experiment.num_clients)
        rule = experiment.aggregator if experiment.keeps_list else experiment.method
        self.aggregate = None if rule == "none" else aggregator.resolve(rule)
        self.elect = election.resolve(experiment.election)

    def start(self, parameters: Parameters) -> ModelList:
        """The initial list: copies of one initialised model."""
        return ModelList.initial(parameters, self.experiment.list_size)

    def round(self, models: ModelList, round_index: int) -> Round:
        """The generator of one round."""
        rng = rng_for(self.experiment.seed, "server", round_index)
        num_honest = self.experiment.num_honest
        if self.experiment.keeps_list:
            return lid_round(
                *(models, round_index, self.clients, rng),
                elect=self.elect,
                aggregate=self.aggregate,
                num_honest=num_honest,
            )
        assert self.aggregate is not None
        return single_round(models, round_index, self.clients, rng, aggregate=self.aggregate, num_honest=num_honest)
