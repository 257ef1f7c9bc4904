"""How simulated clients judge and vote: honest ones by their losses, Byzantine ones by their attack."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lidfl.adversaries.collusion import margin
from lidfl.adversaries.vote_attacks import vote_attack, worst
from lidfl.methods.elections import honest_ballots
from lidfl.protocol import Choose, Replies, Vote
from lidfl.runs.record import finite
from lidfl.seeds import rng_for
from lidfl.settings.answers import checked_ballots
from lidfl.settings.experiment import Experiment
from lidfl.simulation.cast import Cast
from lidfl.simulation.judging import Judges
from lidfl.simulation.wariness import Lengths, Wariness
from lidfl.types import Ballot, Client, Losses


@dataclass(frozen=True)
class Poll:
    """A vote that was held, and what only a simulation can know of it."""

    replies: Replies
    margin: int | None
    """How many more colluding ballots would have removed the favourite of honest voters."""
    loss: dict[int, float | None]
    """The mean loss of each candidate, by id, over those who were asked to vote."""


class Voting:
    """All clients as voters and jurors."""

    def __init__(self, experiment: Experiment, cast: Cast, judges: Judges, wariness: Wariness) -> None:
        self.experiment = experiment
        self.cast = cast
        self.judges = judges
        self.wariness = wariness
        self.vote_attack = vote_attack.resolve(experiment.vote_attack)

    def choices(self, request: Choose, lengths: Lengths) -> Replies:
        """Jurors pick from what was trained, each on its own data.

        A Byzantine juror picks what is worst for it, unless Byzantine clients vote as honest ones do.
        """
        losses = self.judges.fleeting_losses(request.models, np.array(request.voters))
        lie = self.liars(request.voters)
        jurors = [juror for juror, lies in zip(request.voters, lie, strict=True) if not lies]
        best = honest_ballots(self.wariness.judged(losses[~lie], request, jurors, lengths), request.ranks)
        liars = [juror for juror, lies in zip(request.voters, lie, strict=True) if lies]
        return [*zip(jurors, best, strict=True), *zip(liars, worst(losses[lie], request.ranks), strict=True)]

    def liars(self, clients: Sequence[Client]) -> NDArray[np.bool_]:
        """For each of some clients whether it says what harms, and not what it sees."""
        return self.cast.are_byzantine(clients) & (self.vote_attack.name != "none")

    def poll(self, request: Vote, lengths: Lengths) -> Poll:
        """Hold a vote."""
        voters = np.array(request.voters)
        losses = self.judges.losses(request.candidates, voters)
        byzantine = self.cast.are_byzantine(request.voters)
        judged = self.wariness.judged(losses[~byzantine], request, voters[~byzantine].tolist(), lengths)
        with self.judges.stopwatch.timed("voting"):
            honest = honest_ballots(judged, request.ranks)
            forged = self._forged(request, losses[byzantine], judged, honest)
            senders = [*voters[~byzantine].tolist(), *voters[byzantine].tolist()]
            means = map(finite, losses.mean(0))
        with self.judges.stopwatch.timed("margin"):
            left = margin(honest, forged, request.candidates.ages, request.seats, request.ranks)
        return Poll(
            replies=list(zip(senders, [*honest, *forged], strict=True)),
            margin=left,
            loss=dict(zip(request.candidates.ids, means, strict=True)),
        )

    def _forged(self, request: Vote, own: Losses, honest: Losses, ballots: Sequence[Ballot]) -> list[Ballot]:
        """What Byzantine voters cast; where no honest one is there to be outdone, they go by what they see."""
        if len(own) == 0:
            return []
        honest = honest if len(honest) else own
        cast = self.vote_attack(
            losses=own,
            honest_losses=honest,
            honest_ballots=ballots,
            ages=request.candidates.ages,
            seats=request.seats,
            ranks=request.ranks,
            rng=rng_for(self.experiment.seed, "vote", request.round_index),
        )
        return checked_ballots(self.vote_attack.name, cast, len(own))
