"""Which run of a reference a run is compared with: the same seed in the same world.

A reference need not have been run in every row and column of a table. The oracle heeds no attack, so one run of it
with a seed stands for all attacks. Settings are therefore of three kinds:

- the **world**, in which both must agree: data, dealing, clients, the Byzantine fraction, the model, the seed;
- **attacks**, in which they must agree if the reference heeds them: one that leaves attackers out heeds none, and
  one that holds no vote no attack on votes;
- **everything else**, such as rounds, local steps or what candidates are made of: of several runs of the reference
  those are taken that agree in it, if there are any.

If more than one run is left, which of them is meant is not for us to say, and there is no difference to show.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields

from lidfl.settings.experiment import Experiment
from lidfl.studies.sweep import NOT_CONTENT, Result

WORLD = ("dataset", "partition", "split", "num_clients", "byzantine_fraction", "model", "availability", "absent")
NOT_COMPARED = NOT_CONTENT | {"seed", "eval_every", "method"}
"""Settings that say nothing of which runs belong together."""
ORACLE = "oracle"


def usual_reference(results: Iterable[Result]) -> str | None:
    """What results are compared with if nobody says otherwise: the oracle, if it is there and not alone."""
    methods = {experiment.method for experiment, _ in results}
    return ORACLE if ORACLE in methods and len(methods) > 1 else None


def heeded(reference: Experiment) -> list[str]:
    """The settings in which a run and its reference must agree."""
    attacks = [] if reference.plays.ideal else ["attack"]
    votes = ["vote_attack"] if reference.keeps_list else []
    return [*WORLD, *attacks, *votes]


def references_of(experiment: Experiment, references: Sequence[Result]) -> list[Result]:
    """The runs of a reference, one a seed, that an experiment is compared with; none if it is not clear which."""
    fitting = [r for r in references if all(_agree(experiment, r[0], name) for name in heeded(r[0]))]
    for setting in fields(Experiment):
        if setting.name not in NOT_COMPARED:
            fitting = [r for r in fitting if _agree(experiment, r[0], setting.name)] or fitting
    seeds = [reference.seed for reference, _ in fitting]
    return fitting if len(seeds) == len(set(seeds)) else []


def _agree(one: Experiment, other: Experiment, name: str) -> bool:
    return bool(getattr(one, name) == getattr(other, name))
