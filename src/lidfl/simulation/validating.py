"""How simulated validators judge a new model by those before it: by their errors, or, to lie, the other way."""

import numpy as np
import torch

from lidfl.methods.rivals.baffle import errors_by_class, looks_poisoned
from lidfl.protocol import Replies, Validate
from lidfl.simulation.voting import Voting


def verdicts(request: Validate, voting: Voting) -> Replies:
    """Whether the last model looks poisoned to each validator.

    A liar says the opposite of what it sees: it waves through what harms, and rejects what does not.
    """
    shards, judges = voting.judges.validation.shards, voting.judges
    rows, sizes = shards.gather(np.array(request.voters))
    images, labels = shards.images[rows], shards.labels[rows].cpu().numpy()
    classes = int(shards.labels.max()) + 1
    with judges.stopwatch.timed("voting"):
        said = [judges.validation.logits(model, images)[:, :classes].argmax(1) for model in request.models]
        by_voter = np.split(torch.stack(said).cpu().numpy(), np.cumsum(sizes)[:-1], axis=1)
        held = np.split(labels, np.cumsum(sizes)[:-1])
        errors = [
            np.stack([errors_by_class(own, row, classes) for row in theirs])
            for own, theirs in zip(held, by_voter, strict=True)
        ]
        odd = [looks_poisoned(theirs) for theirs in errors]
    lies = voting.liars(request.voters)
    return [(voter, bool(found != lie)) for voter, found, lie in zip(request.voters, odd, lies, strict=True)]
