"""What a method is: the round that it plays, and the settings that it stands for.

A method is one function, the generator of a round, and one line of preset. `lidfl` and what grows out of it keep a
list that clients vote on; every aggregator is a method too, which keeps one model. Others fit as well: a round may
keep several models without a vote, or one for each client, since all it has to do is return the next list. Options
of a method are the keyword-only parameters of its round, written `ifca:clusters=3,rule=cwm`; one that is called
`rule` names an aggregator, alone or after others (`ditto:rule=nnm|trimmed_mean`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from lidfl.errors import LidflError
from lidfl.methods.aggregators import aggregator
from lidfl.methods.pipelines import is_pipeline, resolve_pipeline
from lidfl.protocol import Round, lid_round, local_round, single_round
from lidfl.registry import Registry

PlayRound: TypeAlias = Callable[..., Round]
"""A round: from the list, the round's number, the clients, randomness and the rules to the next list."""
Length: TypeAlias = Callable[..., int]
"""From the number of clients and of honest ones, and the round's options that it names, to the list's length."""

PAPER: Mapping[str, Any] = dict(
    proposal="client", groups="one", candidates=1, parent="uniform", election="plurality", voters=0, workers=0
) | dict(balance=False, reach=0.0, lookahead=0, judge="loss", deploy="best")
"""The settings of a round as the paper has them; what a method does not heed stays so."""


@dataclass(frozen=True)
class Method:
    """What a method is."""

    name: str
    play: PlayRound
    length: Length
    """How long its list is, unless the user says otherwise."""
    votes: bool = False
    """Whether clients vote on which models stay."""
    heeds: frozenset[str] = frozenset()
    """Which settings of a list change what it does."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """What it sets unless the user does."""
    aggregate: str | None = None
    """The aggregator that makes its one model; None if the setting `proposal` says what is made."""
    personal: bool = False
    """Whether each client keeps a model of its own: row c is client c's."""
    ideal: bool = False
    """Whether it is what nobody can do: in a simulation all others than honest clients are left out."""
    momentum: bool = False
    """Whether its clients can send running means of their updates (RESAM, Farhadkhani et al. 2022)."""
    needs: str = ""
    """What it needs that real nodes cannot give, and only a simulation has; empty if nothing."""


def one_model(_clients: int, _honest: int) -> int:
    """A list of one."""
    return 1


def two_each(clients: int, _honest: int) -> int:
    """For each client the best of its models so far, and the latest."""
    return 2 * clients


def shortest_list(clients: int, honest: int) -> int:
    """⌊1/γ⌋ = ⌊m/k⌋: with fewer models the honest clients may lose them all (paper, remark I)."""
    return clients // honest


def roomy_list(clients: int, honest: int) -> int:
    """Four times the shortest.

    With more seats it costs colluders more to remove a good model, and where clients train their favourite, a
    longer list slows nothing down.
    """
    return 4 * shortest_list(clients, honest)


METHODS: dict[str, Method] = {}
"""All methods by name, but for the aggregators."""
rounds: Registry[Round] = Registry("method")
"""Their rounds, to read options by, and to describe them."""
SERVER_DATA = "clean images at the server"
"""What some methods need: a simulation gives the server some."""


def method(
    name: str,
    *,
    length: Length = one_model,
    votes: bool = False,
    heeds: Sequence[str] = (),
    personal: bool = False,
    needs: str = "",
    **preset: Any,
) -> Callable[[PlayRound], PlayRound]:
    """Make a round a method: `@lidfl.method("mine", length=…, proposal="rknn")` above its generator.

    With `personal` row c of its list is the model of client c; `needs` says why real nodes cannot play it.
    """

    def register(play: PlayRound) -> PlayRound:
        taken = METHODS.get(name)
        if name in aggregator or (taken and taken.play.__module__ != play.__module__):
            raise TypeError(f"method '{name}' exists already; rename yours")
        heeded = frozenset({*heeds, *preset})
        METHODS[name] = Method(name, play, length, votes, heeded, preset, personal=personal, needs=needs)
        rounds.functions[name] = play
        return play

    return register


EVERYONES = {"judge", "deploy"}
"""Settings that any method may have: they are about clients, not about the list."""
LIST_SETTINGS = (*(name for name in PAPER if name not in EVERYONES), "list_size")

method("lidfl", length=shortest_list, votes=True, heeds=LIST_SETTINGS)(lid_round)
method(
    "lidfl-ranked",
    length=roomy_list,
    votes=True,
    heeds=LIST_SETTINGS,
    proposal="jurors:stride=2+rknn+average",
    groups="all",
    candidates=3,
    parent="favourite",
    election="ranked",
    balance=True,
    judge="bounded",
    deploy="joined",
)(lid_round)
method("local", length=two_each, personal=True)(local_round)


def oracle_round(*known: Any) -> Round:
    """What nobody can do: federated averaging of honest clients alone."""
    return single_round(*known)


METHODS["oracle"] = Method("oracle", oracle_round, one_model, aggregate="fedavg", ideal=True, momentum=True)
rounds.functions["oracle"] = oracle_round


def resolve_method(spec: str) -> Method:
    """The method that a spec names, such as `lidfl` or, for one model by an aggregator, `gm:iterations=3`."""
    found = known_method(spec)
    if found is None and not is_pipeline(spec):
        raise LidflError(f"unknown method '{spec}'; choose from {', '.join([*METHODS, *aggregator])}")
    found = found or single_model(spec)
    if found.aggregate:
        resolve_pipeline(found.aggregate)
    return found


def known_method(spec: str) -> Method | None:
    """The method that a spec names, with its options; None if it is not one of `METHODS`."""
    found = METHODS.get(spec.partition(":")[0])
    if found is None:
        return None
    options = rounds.defaults(found.name) | rounds.resolve(spec).options
    if not options:
        return found
    if "rule" in options:
        resolve_pipeline(options["rule"]).refuse_memory()
    named = inspect.signature(found.length).parameters
    length = partial(found.length, **{name: value for name, value in options.items() if name in named})
    return replace(found, play=partial(found.play, **options), length=length, aggregate=options.get("rule"))


def single_model(spec: str) -> Method:
    """One model, made by an aggregator."""
    return Method(spec, single_round, one_model, aggregate=spec, momentum=True)


from lidfl.methods import rivals  # noqa: E402, F401 - registers more methods
