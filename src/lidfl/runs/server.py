"""The server's side of an experiment: which round is played, with which rules.

It is the same for a simulation and for a real federation, and knows no more than a server can.
"""

from __future__ import annotations

from collections.abc import Sequence

from lidfl.methods.elections import SINGLE_CHOICE, election
from lidfl.methods.proposals import pipelines_of, resolve_proposals
from lidfl.protocol import Canonical, ModelList, Round, Rules
from lidfl.seeds import rng_for
from lidfl.settings.answers import checked_election, checked_proposal
from lidfl.settings.experiment import Experiment
from lidfl.types import Client, Parameters


class Server:
    """Plays the rounds of an experiment; its only state is the list that it is handed.

    What it draws, it draws from a secret: who knows it knows beforehand who will train, from which model, and who
    will be a juror. A simulation takes the seed for its secret, so that its runs repeat.
    """

    def __init__(
        self,
        experiment: Experiment,
        canonical: Canonical | None = None,
        secret: int | None = None,
        clients: Sequence[Client] | None = None,
    ) -> None:
        self.experiment = experiment
        self.clients = range(experiment.num_clients) if clients is None else clients
        self.rules = rules_of(experiment, canonical)
        self.secret = experiment.seed if secret is None else secret

    def round(self, models: ModelList, round_index: int, skipped: int = 0) -> Round:
        """The generator of one round; after rounds that too few answered, others are drawn."""
        rng = rng_for(self.secret, "server", round_index, *([skipped] if skipped else []))
        return self.experiment.plays.play(models, round_index, self.clients, rng, self.rules)


def first_list(experiment: Experiment, parameters: Parameters) -> ModelList:
    """The list L_0: copies of one initialised model."""
    return ModelList.initial(parameters, experiment.list_size)


def rules_of(experiment: Experiment, canonical: Canonical | None = None) -> Rules:
    """What the settings say about a round."""
    aggregate = experiment.plays.aggregate or experiment.proposal
    all_train = experiment.compares_updates or not experiment.keeps_list
    workers = experiment.workers or (experiment.num_clients if all_train else experiment.candidates)
    return Rules(
        elect=checked_election(election.resolve(experiment.election)),
        ranked=experiment.election not in SINGLE_CHOICE,
        proposals=tuple(map(checked_proposal, resolve_proposals(aggregate))),
        candidates=experiment.candidates,
        every_group=experiment.groups == "all",
        favourite_parents=experiment.parent == "favourite",
        same_parent=experiment.compares_updates,
        workers=workers,
        voters=experiment.voters or None,
        seats=experiment.list_size,
        num_honest=max(1, workers * experiment.assumed_honest // experiment.num_clients),
        remembers=remembered_of(experiment),
        canonical=canonical,
    )


def remembered_of(experiment: Experiment) -> str:
    """What a single model's server keeps of each client: what it last sent, sums over rounds, or nothing."""
    if experiment.client_momentum:
        return "last"
    rules = pipelines_of(experiment.plays.aggregate) if experiment.plays.aggregate else []
    return "sum" if any(rule.remembers for rule in rules) else ""
