"""What the majority of a list's models says, and whether so many malicious clients could have changed it."""

import numpy as np

from lidfl.methods.rivals.flcert import certified
from lidfl.protocol import ModelList
from lidfl.runs.directory import Summary
from lidfl.simulation.cast import Cast
from lidfl.simulation.judging import Judges


def certificate(models: ModelList, judges: Judges, cast: Cast) -> Summary:
    """The mean accuracy of honest clients by majority, and how much of it is certain with as many bad clients."""
    shards = judges.testing.shards
    labels = shards.labels.cpu().numpy()
    counts = np.zeros((len(labels), int(labels.max()) + 1), dtype=np.int64)
    for model in models.parameters:
        said = judges.testing.logits(model, shards.images)[:, : counts.shape[1]].argmax(1).cpu().numpy()
        counts[np.arange(len(labels)), said] += 1
    voted, bound = certified(counts)
    right, sure = voted == labels, (voted == labels) & (bound >= len(cast.byzantine))
    byzantine = cast.byzantine
    held = [shards.rows(client) for client in cast.audience.tolist() if client not in byzantine]
    return {
        "vote_accuracy": float(np.mean([right[rows].mean() for rows in held])),
        "certified_accuracy": float(np.mean([sure[rows].mean() for rows in held])),
    }
