"""One frozen `Experiment`: the settings of a run, from Python, TOML or the command line.

A setting left open takes the paper's value for the data set and model, or follows from the others; once built, an
experiment has every value filled in, has been checked, and says all that is needed to repeat the run.
"""

import difflib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from lidfl import models
from lidfl.aggregators import aggregator
from lidfl.attacks import attack
from lidfl.datasets import dataset
from lidfl.datasets.federated import parse_split
from lidfl.elections import SINGLE_CHOICE, election
from lidfl.errors import LidflError
from lidfl.partitions import partition
from lidfl.protocol import resolve_proposals
from lidfl.vote_attacks import vote_attack

LIST_METHODS: dict[str, dict[str, Any]] = {
    "lidfl": dict(proposal="client", propose="one", candidates=1, parent="uniform", election="plurality"),
    "lidfl-ranked": dict(proposal="jurors:stride=2+rknn+average", propose="all", candidates=3)
    | dict(parent="favourite", election="ranked"),
}
"""Methods that keep a list of models, and what they stand for: the paper's, and what we found beyond it."""
ROOM = {"lidfl-ranked": 4}
"""How many times the smallest list a method keeps: with more seats it costs colluders more to remove a good model,
and where clients train their favourite, a longer list slows nothing down."""
ORACLE = "oracle"
"""FedAvg over the honest clients only: what nobody can do, to compare with."""
ENGINE_NAMES = ["auto", "linear", "loop", "vmap"]

Settings = dict[str, Any]

SMALL: Settings = dict(num_clients=20, partition="iid", split="36:9:5", model="lr", rounds=100) | dict(
    local_steps=10, batch_size=16, learning_rate=0.01, momentum=0.9, eval_every=5
)
"""Defaults for the embedded digits and for a user's own data."""

FEMNIST: Settings = dict(num_clients=35, partition="iid:sizes=lognormal", split="36:9:5", model="lr") | dict(
    rounds=1500, local_steps=25, batch_size=32, learning_rate=0.01, momentum=0.9, eval_every=10
)
"""The paper's set-up on FEMNIST (section 5.1, appendix B.3)."""

CIFAR10: Settings = dict(num_clients=35, partition="iid", split="4:1:1", model="cnn", rounds=2000) | dict(
    local_steps=20, batch_size=32, learning_rate=0.01, momentum=0.9, eval_every=20
)
"""The paper's set-up on CIFAR-10."""


def defaults(dataset_name: str, model_name: str | None = None) -> Settings:
    """The settings that depend on the data set and the model, unless the user says otherwise."""
    settings = {"femnist": FEMNIST, "cifar10": CIFAR10}.get(dataset_name, SMALL)
    if (dataset_name, model_name) == ("femnist", "cnn"):
        return settings | {"batch_size": 64}
    return settings


def option(help_text: str, default: Any = None, *, paper: Any = None) -> Any:
    """A setting with its help; a default of None is filled in from the others.

    `paper` is the value that does not count in a run's name: options may be added, and names stay.
    """
    return field(default=default, metadata={"help": help_text, "neutral": default if paper is None else paper})


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The settings of a run.

    >>> Experiment(dataset="femnist", byzantine_fraction=0.6).list_size
    2
    """

    name: str = option("what the run is called (default: made from data set, model, method and attacks)")
    dataset: str = option("data set, see `lidfl list`", "digits")
    partition: str = option("how images are dealt to clients")
    split: str = option("train:validation:test within each client")
    num_clients: int = option("m, how many clients there are")
    byzantine_fraction: float = option("fraction of clients that are Byzantine, below 1", 0.6)
    model: str = option("model, or your own as package.module:function")
    method: str = option(
        "lidfl, lidfl-ranked, oracle, or an aggregator for one model: fedavg, gm, norm, …", "lidfl"
    )
    proposal: str = option(
        "what the candidates are: client, rknn, meb, jurors, …, or several as a+b", paper="client"
    )
    propose: str = option("one or all of an aggregator's groups become candidates", paper="one")
    candidates: int = option("how many clients or jurors propose a candidate each round", paper=1)
    parent: str = option("which model a client trains: uniform (drawn), or favourite (its own)", paper="uniform")
    election: str = option("how the list is voted on: plurality, or ranked", paper="plurality")
    voters: int = option("how many clients, drawn anew each round, vote (0: all)", 0)
    workers: int = option("how many clients train each round (0: as many as the proposals need)", 0)
    attack: str = option("what Byzantine clients send as updates", "sign_flip")
    vote_attack: str = option("how Byzantine clients vote", "worst")
    list_size: int = option(
        "q, how many models the server keeps (default: num_clients // num_honest; lidfl-ranked: 4 times that)"
    )
    rounds: int = option("T, how many rounds")
    local_steps: int = option("τ, gradient steps of one local training")
    batch_size: int = option("b, images per gradient step")
    learning_rate: float = option("ℓ")
    momentum: float = option("μ, starting from 0 in every local training")
    seed: int = option("all randomness follows from it", 2024)
    eval_every: int = option("test the list every so many rounds, and at the last")
    checkpoint_every: int = option("save the state every so many rounds", 50)
    engine: str = option("how local trainings are computed: auto, linear, loop or vmap", "auto")
    device: str = option("where to compute, e.g. cpu or cuda", "cpu")
    out: str = option("run directory (default: runs/<name>-<seed>)")

    def __post_init__(self) -> None:
        self._fill({"model": defaults(_name(self.dataset))["model"]})
        self._fill(defaults(_name(self.dataset), _name(self.model)))
        self._fill(LIST_METHODS.get(self.method, LIST_METHODS["lidfl"]))
        self._check_types()
        self._check_numbers()
        self._check_names()
        self._fill({"list_size": self.smallest_list * ROOM.get(self.method, 1), "name": self._default_name()})
        self._fill({"out": f"runs/{self.name}-{self.seed}"})
        self._check_list_size()
        self._check_list_options()

    @property
    def num_byzantine(self) -> int:
        """⌊fraction · m⌋ in exact arithmetic: 0.6 of 35 is 21, never 20."""
        return math.floor(Fraction(str(self.byzantine_fraction)) * self.num_clients)

    @property
    def num_honest(self) -> int:
        """k = m − |B|."""
        return self.num_clients - self.num_byzantine

    @property
    def keeps_list(self) -> bool:
        """Whether the server keeps a list of models, or a single one."""
        return self.method in LIST_METHODS

    @property
    def method_label(self) -> str:
        """The method as tables name it, such as lidfl+rknn."""
        usual = LIST_METHODS.get(self.method, {}).get("proposal", self.proposal)
        return self.method if self.proposal == usual else f"{self.method}+{self.proposal}"

    @property
    def compares_updates(self) -> bool:
        """Whether candidates are made from many clients' updates, or each from one."""
        return self.proposal != "client"

    @property
    def cautions(self) -> list[str]:
        """What is allowed and yet likely to be a mistake, each with the way out."""
        several = self.candidates > 1 or self.propose == "all" or "+" in self.proposal
        if self.keeps_list and several and self.election in SINGLE_CHOICE:
            return [
                f"several candidates a round under {self.election}: honest votes split over them, and colluding "
                "voters can remove them all; set --election ranked, which keeps one for any number of candidates"
            ]
        return []

    @property
    def smallest_list(self) -> int:
        """⌊1/γ⌋ = ⌊m/k⌋: with fewer models the honest clients may lose them all (paper, remark I)."""
        return self.num_clients // self.num_honest if self.keeps_list else 1

    @classmethod
    def from_toml(cls, path: Path, **overrides: Any) -> "Experiment":
        """Read a TOML file of settings; overrides go before the file."""
        return cls.of(read_toml(path) | overrides)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Experiment":
        """An experiment from named settings, refusing names that do not exist."""
        known = [f.name for f in fields(cls)]
        for name in settings:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean '{close[0]}'?" if close else f"; choose from {', '.join(known)}"
                raise LidflError(f"unknown setting '{name}'{hint}")
        return cls(**settings)

    def with_settings(self, **changes: Any) -> "Experiment":
        """The same experiment with some settings changed."""
        return Experiment.of(asdict(self) | changes)

    def to_toml(self) -> str:
        """The settings as TOML, which `from_toml` reads back to an equal experiment."""
        return "".join(f"{f.name} = {_toml_value(getattr(self, f.name))}\n" for f in fields(self))

    def differences(self, other: "Experiment") -> list[str]:
        """The names of the settings in which two experiments differ."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]

    def _fill(self, values: Mapping[str, Any]) -> None:
        """Give each of these settings its value if it is still open."""
        for name in values.keys() & {f.name for f in fields(self)}:
            if getattr(self, name) is None:
                # The one place where a frozen experiment is written to: while it is being made.
                object.__setattr__(self, name, values[name])

    def _default_name(self) -> str:
        parts = [self.dataset, self.model, self.method_label]
        parts += [self.attack] if self.attack != "none" else []
        return file_name(*parts)

    def _check_types(self) -> None:
        for setting in fields(self):
            value, kind = getattr(self, setting.name), setting.type
            if kind is float and type(value) is int:
                object.__setattr__(self, setting.name, float(value))
            elif value is not None and type(value) is not kind:
                kind_name = getattr(kind, "__name__", str(kind))
                raise LidflError(f"{setting.name} must be {kind_name}, not {value!r}")

    def _check_numbers(self) -> None:
        at_least_one = [
            "num_clients",
            "rounds",
            "local_steps",
            "batch_size",
            "eval_every",
            "checkpoint_every",
            "candidates",
        ]
        for name in at_least_one:
            if getattr(self, name) < 1:
                raise LidflError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("voters", "workers"):
            if not 0 <= getattr(self, name) <= self.num_clients:
                raise LidflError(f"{name} must be from 0 (all) to num_clients, {self.num_clients}")
        if not 0 <= self.byzantine_fraction < 1:
            raise LidflError(f"byzantine_fraction must be in [0, 1), not {self.byzantine_fraction}")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise LidflError(f"learning_rate must be positive, not {self.learning_rate}")
        if not 0 <= self.momentum < 1:
            raise LidflError(f"momentum must be in [0, 1), not {self.momentum}")

    def _check_names(self) -> None:
        """Resolve every name once, so that a slip is reported before round one."""
        dataset.resolve(self.dataset)
        partition.resolve(self.partition)
        attack.resolve(self.attack)
        vote_attack.resolve(self.vote_attack)
        election.resolve(self.election)
        models.resolve(self.model)
        parse_split(self.split)
        self._check_method()
        if self.engine not in ENGINE_NAMES:
            raise LidflError(f"unknown engine '{self.engine}'; choose from {', '.join(ENGINE_NAMES)}")
        try:
            torch.device(self.device)
        except RuntimeError:
            raise LidflError(f"unknown device '{self.device}'; choose cpu, cuda or cuda:0, …") from None

    def _check_method(self) -> None:
        for name, choices in (("propose", ("one", "all")), ("parent", ("uniform", "favourite"))):
            if getattr(self, name) not in choices:
                raise LidflError(f"unknown {name} '{getattr(self, name)}'; choose from {', '.join(choices)}")
        resolve_proposals(self.proposal)
        if self.keeps_list or self.method == ORACLE:
            return
        if _name(self.method) not in aggregator:
            choices_text = ", ".join([*LIST_METHODS, ORACLE, *aggregator])
            raise LidflError(f"unknown method '{self.method}'; choose from {choices_text}")
        aggregator.resolve(self.method)

    def _check_list_options(self) -> None:
        """Refuse what would do nothing."""
        for name in () if self.keeps_list else (*LIST_METHODS["lidfl"], "voters", "workers"):
            setting = next(f for f in fields(self) if f.name == name)
            if getattr(self, name) != setting.metadata["neutral"]:
                raise LidflError(f"{name} goes with method = lidfl; leave it out with {self.method}")

    def _check_list_size(self) -> None:
        if not self.keeps_list and self.list_size != 1:
            raise LidflError(f"list_size goes with method = lidfl; {self.method} keeps one model")
        if self.list_size < self.smallest_list:
            raise LidflError(
                f"list_size {self.list_size} is too small: with {self.num_honest} honest of {self.num_clients} "
                f"clients a list needs {self.smallest_list} models, or the others can vote all good ones out"
            )


def read_toml(path: Path) -> Settings:
    """The settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LidflError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LidflError(f"cannot read {path}: {error}") from None


def file_name(*parts: str) -> str:
    """Parts joined by dashes, with only such characters as every file system takes."""
    return "-".join("".join(c if c.isalnum() or c in "_.+=" else "_" for c in part) for part in parts)


def _name(spec: object) -> str:
    """The part of a spec before its options."""
    return spec.partition(":")[0] if isinstance(spec, str) else ""


def _toml_value(value: str | int | float) -> str:
    # A JSON string is a TOML string, but for DEL, which only TOML wants escaped.
    return (
        json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)
    )
