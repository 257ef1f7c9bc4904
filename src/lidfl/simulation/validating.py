"""How simulated validators judge a new model by those before it: by their errors, or, to lie, the other way."""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from lidfl.methods.rivals.baffle import errors_by_class, looks_poisoned
from lidfl.protocol import Replies, Validate
from lidfl.simulation.voting import Voting
from lidfl.types import Parameters


class Validators:
    """All clients as validators. What a model says of all images is remembered while it is among those before."""

    def __init__(self, voting: Voting) -> None:
        self.voting = voting
        self.judges = voting.judges
        self.shards = voting.judges.validation.shards
        self.said: dict[bytes, NDArray[np.int64]] = {}

    def verdicts(self, request: Validate) -> Replies:
        """Whether the last model looks poisoned to each validator.

        A liar says the opposite of what it sees: it waves through what harms, and rejects what does not.
        """
        labels = self.shards.labels.cpu().numpy()
        classes = int(labels.max()) + 1
        with self.judges.stopwatch.timed("voting"):
            told = self._told(request)
            held = (self.shards.rows(voter) for voter in request.voters)
            errors = ([errors_by_class(labels[own], said[own], classes) for said in told] for own in held)
            odd = [looks_poisoned(np.stack(theirs)) for theirs in errors]
        lies = self.voting.liars(request.voters)
        return [(voter, bool(found != lie)) for voter, found, lie in zip(request.voters, odd, lies, strict=True)]

    def _told(self, request: Validate) -> list[NDArray[np.int64]]:
        """What each model says of all images; what is not asked about any more is forgotten."""
        names = [blake2b(model.cpu().numpy().tobytes()).digest() for model in request.models]
        known = {name: self._said(name, model) for name, model in zip(names, request.models, strict=True)}
        self.said = known
        return [known[name] for name in names]

    def _said(self, name: bytes, model: Parameters) -> NDArray[np.int64]:
        """The class that a model gives to every validation image."""
        if name in self.said:
            return self.said[name]
        said: NDArray[np.int64] = self.judges.validation.logits(model, self.shards.images).argmax(1).cpu().numpy()
        return said
