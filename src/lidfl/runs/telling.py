"""A round in words, and how safe its vote was as far as a server can tell."""

from collections.abc import Mapping

from lidfl.runs.record import RoundRecord


def story(record: RoundRecord) -> str:
    """What happened in a round, in words."""
    match record.born:
        case () if record.removed:
            text = "fewer clients, a shorter list"
        case ():
            return f"round {record.number}: no usable update, the list stays"
        case (birth,):
            who = f"client {birth.clients[0]}" if len(birth.clients) == 1 else f"{len(birth.clients)} clients"
            text = f"{who} trained model {birth.model} from {', '.join(map(str, birth.parents))}"
        case births:
            text = f"{len(births)} candidates, {births[0].model} to {births[-1].model}"
    parts = [f"round {record.number}: {text}"]
    parts += [f"out: {', '.join(map(str, record.removed))}"] if record.removed else []
    parts += [f"margin {record.margin}"] if record.margin is not None else []
    rejected = sum(record.rejected.values())
    parts += [f"{rejected} replies rejected"] if rejected else []
    return "; ".join(parts)


def log_line(record: RoundRecord, rounds: int, voters: int) -> str:
    """All that a server can tell of a round, in a line: for a log that somebody watches."""
    accuracy = f"accuracy {record.best_accuracy:.3f}" if record.tested else ""
    votes = " ".join(f"{model}:{count}" for model, count in record.votes.items())
    margin = record.margin if record.margin is not None else record.margin_estimate
    parts = [
        f"round {record.number}/{rounds}",
        accuracy,
        f"votes {votes} ({sum(record.votes.values())} of {voters})" if record.votes else "no vote",
        f"out {' '.join(map(str, record.removed))}" if record.removed else "",
        f"margin about {margin}" if margin is not None else "",
        _roll(record.roll) if record.roll else "",
        f"late: {' '.join(f'client {client}' for client in record.late)}" if record.late else "",
        f"rejected: {_counted(record.rejected)}" if record.rejected else "",
        f"refused: {_counted(record.refused)}" if record.refused else "",
        f"{record.seconds:.1f} s",
    ]
    return ", ".join(part for part in parts if part)


def _roll(roll: Mapping[str, int]) -> str:
    """The roll in a few words; and whether newcomers that are all malicious would break the guarantee."""
    came = f" ({roll['joined']} joined, {roll['left']} left)" if roll["joined"] or roll["left"] else ""
    worst = "" if roll["margin_at_worst"] >= 0 else f", AT WORST {-roll['margin_at_worst']} HONEST BALLOTS SHORT"
    return f"roll {roll['clients']}{came}, {roll['seats']} seats, quota {roll['quota']}{worst}"


def _counted(reasons: Mapping[str, int]) -> str:
    return " ".join(f"{count} {reason}" for reason, count in reasons.items())


def estimate_margin(votes: Mapping[int, int], seats: int, num_honest: int) -> int | None:
    """How many more colluding ballots would have removed what honest voters may like best, from the count alone.

    A server does not know who is honest. If the honest agree, their favourite has at least as many first choices as
    there are honest voters; of all models that have, the one that is removed most cheaply counts. If none has, the
    honest are divided, and the model with the most first choices counts. `votes` is in order of birth; with equal
    votes the older goes. Exact for plurality; ranked ballots may move on, so there it is only near.
    """
    tally = list(votes.values())
    if seats >= len(tally) or not any(tally):
        return None
    likely = [place for place, count in enumerate(tally) if count >= num_honest] or [tally.index(max(tally))]
    return min(_lift(tally, place, seats) for place in likely)


def _lift(tally: list[int], place: int, seats: int) -> int:
    """How many ballots lift so many others over a candidate."""
    needs = [max(0, tally[place] + (other < place) - count) for other, count in enumerate(tally) if other != place]
    return sum(sorted(needs)[:seats])
