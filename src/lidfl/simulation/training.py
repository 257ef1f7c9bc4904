"""How simulated clients answer a request to train: honest ones by their work, Byzantine ones by their attack."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from lidfl.learning.client import Pull
from lidfl.methods.elections import honest_ballots
from lidfl.methods.pipelines import resolve_pipeline
from lidfl.methods.proposals import pipelines_of
from lidfl.protocol import ModelList, Replies, Train, Trained, first_choices
from lidfl.seeds import rng_for
from lidfl.settings.answers import as_updates, checked_pipeline
from lidfl.simulation.judging import Judges
from lidfl.simulation.workshop import Job, Workshop
from lidfl.types import Client, Parameters, Position, Updates


class Training:
    """All clients as workers."""

    def __init__(self, workshop: Workshop, judges: Judges) -> None:
        self.workshop = workshop
        self.judges = judges
        self.experiment = workshop.experiment
        self.network = workshop.network
        self.cast = workshop.cast
        self.silent = self.cast.byzantine if self.experiment.plays.ideal else frozenset()
        self.attack = workshop.attack
        self.poisons_data = workshop.poisons_data

    def replies(self, request: Train) -> Replies:
        """What each worker sends back."""
        parents = self._parents(request)
        preferred = self._preferred(request.models) if "preferred" in self.attack.wants else None
        with self.judges.stopwatch.timed("training"):
            workers = [client for client in request.offers if client not in self.silent]
            attackers = [client for client in workers if client in self.cast.byzantine]
            idle = attackers if request.alone and self.attack.name != "none" else []  # whom would they harm?
            attackers = [client for client in attackers if client not in idle]
            jobs = self._needed([client for client in workers if client not in idle], attackers, parents)
            trained: dict[Job, Parameters] = {}
            models, shop = request.models.parameters, self.workshop
            pull = None if request.anchor is None else Pull(models[request.anchor], request.pull)
            for group, alike in shop.alike(jobs, models, request.round_index, "batch", shop.work.steps, pull):
                trained |= dict(zip(group, shop.engine(alike), strict=True))
            trained = self._running(trained, request.models)
            sent = {c: trained[c, parents[c]] for c in workers if (c, parents[c]) in trained}
            sent |= {client: torch.zeros_like(models[0]) for client in idle}
            if self.workshop.send or not self.poisons_data:
                for parent in sorted({parents[client] for client in attackers}):
                    accomplices = [client for client in attackers if parents[client] == parent]
                    sent |= self._forged(trained, accomplices, parent, request, preferred)
            new = self._returned(request.round_index)
            return [(client, Trained(parents[client], sent[client], client in new)) for client in workers]

    def _returned(self, round_index: int) -> frozenset[Client]:
        """The Byzantine clients who left and are back as new ones."""
        churn = self.experiment.churn
        return self.cast.byzantine if churn and round_index and round_index % churn == 0 else frozenset()

    def _running(self, trained: dict[Job, Parameters], models: ModelList) -> dict[Job, Parameters]:
        """What clients trained as running means, if they send these: m ← βm + (1 − β)u (Farhadkhani et al. 2022).

        What each last sent is remembered with the list; a client of a real federation would keep it itself. Where
        Byzantine clients look at an update of their own, it goes on from the honest mean, which they know.
        """
        share = self.experiment.client_momentum
        if not share:
            return trained
        before = models.memory
        if before is None:
            before = torch.zeros(self.experiment.num_clients, models.parameters.shape[1]).to(models.parameters)
        common = before[self.cast.honest].mean(0)
        last = {job: common if job[0] in self.cast.byzantine else before[job[0]] for job in trained}
        return {job: share * last[job] + (1 - share) * update for job, update in trained.items()}

    def _parents(self, request: Train) -> dict[Client, Position]:
        """Which of the models that it is offered each client trains.

        Where there is a vote, a Byzantine client takes what most honest ones take: there it does the most harm.
        Else there is no one place to attack, and they spread as honest clients do.
        """
        choices = {client: offer[0] for client, offer in request.offers.items() if len(offer) == 1}
        undecided = sorted(client for client in request.offers if client not in choices)
        if not undecided:
            return choices
        if self.experiment.plays.personal:  # hardly any model is seen twice
            losses = self.judges.fleeting_losses(request.models.parameters, np.array(undecided))
        else:
            losses = self.judges.losses(request.models, np.array(undecided))
        for client, row in zip(undecided, losses, strict=True):
            offer = request.offers[client]
            choices[client] = offer[int(row[list(offer)].argmin())]
        byzantine = self.cast.byzantine
        favoured = Counter(choices[client] for client in request.offers if client not in byzantine)
        if favoured:
            liars = [client for client in undecided if client in byzantine]
            places = spread(favoured, len(liars), to_all=not self.experiment.keeps_list)
            choices |= {c: place for c, place in zip(liars, places, strict=True) if place in request.offers[c]}
        return choices

    def _needed(
        self, workers: Sequence[Client], attackers: Sequence[Client], parents: Mapping[Client, Position]
    ) -> list[Job]:
        """Which trainings are computed: those that are sent, and those that the attack looks at."""
        needed = {(client, parents[client]) for client in workers if client not in self.cast.byzantine}
        if self.poisons_data or "own" in self.attack.wants:
            needed |= {(client, parents[client]) for client in attackers}
        if "honest" in self.attack.wants or self.workshop.send:
            needed |= {(client, parents[attacker]) for attacker in attackers for client in self.cast.honest}
        return sorted(needed)

    def _forged(
        self,
        trained: Mapping[Job, Parameters],
        attackers: Sequence[Client],
        parent: Position,
        request: Train,
        preferred: "Parameters | None",
    ) -> dict[Client, Parameters]:
        """What attackers who were sent the same model send back."""
        start = request.models.parameters[parent]
        if self.workshop.send:
            own, honest = (_rows(trained, clients, parent) for clients in (attackers, self.cast.honest))
            made: object = self.workshop.send(own, honest)
        else:
            made = self._made(trained, attackers, parent, request, preferred)
        forged = as_updates(self.attack.name, made, len(attackers), start)
        return dict(zip(attackers, forged, strict=True))

    def _made(
        self,
        trained: Mapping[Job, Parameters],
        attackers: Sequence[Client],
        parent: Position,
        request: Train,
        preferred: "Parameters | None",
    ) -> object:
        """What the attack gives, whatever that is."""
        wants = self.attack.wants
        made: object = self.attack(
            own=_rows(trained, attackers, parent) if "own" in wants else None,
            honest=_rows(trained, self.cast.honest, parent) if "honest" in wants else None,
            start=request.models.parameters[parent],
            preferred=preferred,
            layers=self.network.shapes,
            attackers=len(attackers),
            round_index=request.round_index,
            num_byzantine=len(self.cast.byzantine),
            num_classes=self.workshop.data.num_classes,
            aggregate=partial(self._aggregate, request.round_index),
            rng=rng_for(self.experiment.seed, "attack", request.round_index, parent),
        )
        return made

    def _aggregate(self, round_index: int, updates: Updates) -> Parameters:
        """What the rule in use would make of the updates of all; attackers do not know what the server draws."""
        spec = self.experiment.plays.aggregate or self.experiment.proposal
        rule = next(iter(pipelines_of(spec)), None) or resolve_pipeline("fedavg")
        rng = rng_for(self.experiment.seed, "guess", round_index)
        return checked_pipeline(rule).vector(updates, num_honest=len(self.cast.honest), rng=rng)

    def _preferred(self, models: ModelList) -> Parameters:
        """The model that most honest clients would vote for."""
        ballots = honest_ballots(self.judges.losses(models, np.array(self.cast.honest)))
        return models.parameters[int(np.argmax(first_choices(ballots, len(models))))]


def _rows(updates: Mapping[Job, Parameters], clients: Iterable[Client], parent: Position) -> Updates:
    return torch.stack([updates[client, parent] for client in clients])


def spread(favoured: "Counter[Position]", count: int, *, to_all: bool) -> list[Position]:
    """Where so many attackers go: all to the most common place, or to each place in proportion.

    Whoever comes next goes where attackers are fewest for the honest clients that are there.
    """
    if not to_all:
        return [favoured.most_common(1)[0][0]] * count
    places: list[Position] = []
    sent: Counter[Position] = Counter()
    for _ in range(count):
        place = min(sorted(favoured), key=lambda place: (sent[place] + 1) / favoured[place])
        sent[place] += 1
        places.append(place)
    return places
