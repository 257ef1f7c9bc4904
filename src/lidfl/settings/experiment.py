"""One frozen `Experiment`: the settings of a run, from Python, TOML or the command line.

A setting left open takes the paper's value for the data set and model, or follows from the others; once built, an
experiment has every value filled in, has been checked, and says all that is needed to repeat the run.
"""

import difflib
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lidfl.data import dealt_by_itself
from lidfl.errors import LidflError
from lidfl.files import read_toml, toml_value
from lidfl.learning.models import own_file
from lidfl.methods.elections import SINGLE_CHOICE
from lidfl.methods.method import PAPER, Method, known_method, shortest_list, single_model
from lidfl.plugins import load_recorded
from lidfl.settings import checks
from lidfl.settings.defaults import Settings, defaults
from lidfl.settings.objects import REGISTRIES, name_of
from lidfl.settings.options import option

if TYPE_CHECKING:
    Name: TypeAlias = Any
else:
    Name = str
"""A name; an object that is given in its place becomes one."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The settings of a run.

    >>> Experiment(dataset="femnist", byzantine_fraction=0.6).list_size
    2
    """

    name: str = option("what the run is called (default: made from data set, model, method and attacks)")
    dataset: Name = option("data set, see `lidfl list`", "digits")
    partition: str = option("how images are dealt to clients")
    split: str = option("train:validation:test within each client")
    num_clients: int = option("m, how many clients there are")
    byzantine_fraction: float = option("fraction of clients that are Byzantine, below 1", 0.6)
    assumed_byzantine_fraction: float = option(
        "what server and honest clients take that fraction to be (-1: what it is)", -1.0
    )
    model: Name = option("model, or your own as package.module:function or ./file.py:function")
    method: str = option(
        "lidfl, lidfl-ranked, oracle, a rival (ditto, ifca, …), or an aggregator for one model: fedavg, gm, …",
        "lidfl",
    )
    proposal: str = option(
        "what the candidates are: client, rknn, meb, jurors, …, or several as a+b", paper="client"
    )
    groups: str = option("one or all of an aggregator's groups become candidates", paper="one", formerly="propose")
    candidates: int = option("how many clients or jurors propose a candidate each round", paper=1)
    parent: str = option("which model a client trains: uniform (drawn), or favourite (its own)", paper="uniform")
    election: str = option("how the list is voted on: plurality, or ranked", paper="plurality")
    voters: int = option("how many clients, drawn anew each round, vote (0: all)", 0)
    workers: int = option("how many clients train each round (0: as many as the proposals need)", 0)
    judge: str = option("how clients judge a model: loss, bounded, errors", paper="loss")
    deploy: str = option(
        "what a client makes of the list: best, or_alone, soup, tuned, alike, joined, …", paper="best"
    )
    balance: bool = option("undo what changes a model and not its function: scales, offsets, order", paper=False)
    reach: float = option("a voter puts last what lies beyond so many of its own updates (0: no bound)", paper=0.0)
    lookahead: int = option("gradient steps that a voter takes before it judges a model", paper=0)
    attack: Name = option("what Byzantine clients send as updates", "sign_flip")
    vote_attack: str = option("how Byzantine clients vote", "worst")
    list_size: int = option(
        "q, how many models the server keeps (default: num_clients // num_honest; lidfl-ranked: 4 times that)"
    )
    unsafe_list: bool = option("allow a list on which the others can vote all good models out", False)
    availability: float = option("how much of the time those who come and go are there", 1.0)
    absent: str = option("who comes and goes: honest, byzantine (when it suits them), or both", "both")
    client_momentum: float = option("β, clients of a single model send running means of updates (0: none)", 0.0)
    churn: int = option("Byzantine clients leave and return as new ones every so many rounds (0: never)", 0)
    server_samples: int = option("clean images at the server, where needed (0: as a client validates with)", 100)
    server_bias: float = option("share of the server's images that are of one class (0: as they come)", 0.0)
    rounds: int = option("T, how many rounds")
    local_steps: int = option("τ, gradient steps of one local training")
    batch_size: int = option("b, images per gradient step")
    learning_rate: float = option("ℓ")
    momentum: float = option("μ, starting from 0 in every local training")
    seed: int = option("all randomness follows from it", 2024)
    eval_every: int = option("test the list every so many rounds, and at the last")
    checkpoint_every: int = option("save the state every so many rounds", 50)
    engine: str = option("how local trainings are computed: auto, sparse, linear, native, loop or vmap", "auto")
    device: str = option("where to compute, e.g. cpu or cuda", "cpu")
    out: str = option("run directory (default: runs/<name>-<seed>)")
    plugin: str = option("a file of your own attacks, rules, models, …, loaded first; several joined by ;", "")

    def __post_init__(self) -> None:
        self._take_over()
        self._check_types()
        if self._is_open("partition"):
            self._fill(dealt_by_itself(self.dataset))
        self._fill_in()
        checks.check_numbers(self)
        checks.check_names(self)
        checks.check_run_name(self.name)
        checks.check_list(self)
        checks.check_rivals(self)
        checks.check_search(self)

    @property
    def plays(self) -> Method:
        """What its method is; a name that nobody knows here is taken for an aggregator, which keeps one model."""
        return known_method(self.method) or single_model(self.method)

    @property
    def num_byzantine(self) -> int:
        """⌊fraction · m⌋ in exact arithmetic: 0.6 of 35 is 21, never 20."""
        return _share(self.byzantine_fraction, self.num_clients)

    @property
    def num_honest(self) -> int:
        """k = m − |B|."""
        return self.num_clients - self.num_byzantine

    @property
    def assumed_honest(self) -> int:
        """How many clients server and honest clients take to be honest."""
        assumed = self.assumed_byzantine_fraction
        return self.num_honest if assumed == -1 else self.num_clients - _share(assumed, self.num_clients)

    @property
    def keeps_list(self) -> bool:
        """Whether the server keeps a list of models that clients vote on."""
        return self.plays.votes

    @property
    def method_label(self) -> str:
        """The method as tables name it, such as lidfl+rknn."""
        usual = {**PAPER, **self.plays.preset}["proposal"]
        return self.method if self.proposal == usual else f"{self.method}+{self.proposal}"

    @property
    def compares_updates(self) -> bool:
        """Whether candidates are made from many clients' updates, or each from one."""
        return self.proposal != "client"

    @property
    def cautions(self) -> list[str]:
        """What is allowed and yet likely to be a mistake, each with the way out."""
        several = self.candidates > 1 or self.groups == "all" or "+" in self.proposal
        cautions = checks.beyond_range(self)
        if self.keeps_list and several and self.election in SINGLE_CHOICE:
            cautions.append(
                f"several candidates a round under {self.election}: honest votes split over them, and colluding "
                'voters can remove them all; set election="ranked", which keeps one for any number of candidates'
            )
        if self.list_size < self.smallest_list:
            cautions.append(
                f"a list of {self.list_size} is not safe with {self.assumed_honest} honest of {self.num_clients} "
                f"clients: the others can vote all good models out; {self.smallest_list} are"
            )
        return cautions

    @property
    def smallest_list(self) -> int:
        """The shortest list on which honest clients cannot be outvoted."""
        return shortest_list(self.num_clients, self.assumed_honest) if self.keeps_list else 1

    @classmethod
    def from_toml(cls, path: Path, **overrides: Any) -> "Experiment":
        """Read a TOML file of settings; overrides go before the file."""
        return cls.of(read_toml(path) | overrides)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Experiment":
        """An experiment from named settings, refusing names that do not exist."""
        return cls(**known_settings(settings, warn=True))

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> "Experiment":
        """An experiment as a run has recorded it: nothing that it names is looked up, imported or run.

        A setting that is younger than the record has its neutral value.
        """
        neutral = {f.name: f.metadata["neutral"] for f in fields(cls)}
        experiment = cls.unchecked(neutral | known_settings(settings, warn=False))
        checks.check_numbers(experiment)
        return experiment

    @classmethod
    def unchecked(cls, settings: Mapping[str, Any]) -> "Experiment":
        """An experiment with every value filled in, of which nothing is looked up or checked but types."""
        experiment = object.__new__(cls)
        for setting in fields(cls):
            experiment._write(setting.name, settings.get(setting.name, setting.default))
        experiment._check_types()
        experiment._fill_in()
        return experiment

    def with_settings(self, **changes: Any) -> "Experiment":
        """The same experiment with some settings changed."""
        return Experiment.of(asdict(self) | changes)

    def to_toml(self) -> str:
        """The settings as TOML, which `from_toml` reads back to an equal experiment."""
        return "".join(f"{f.name} = {toml_value(getattr(self, f.name))}\n" for f in fields(self))

    def differences(self, other: "Experiment") -> list[str]:
        """The names of the settings in which two experiments differ."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]

    def _take_over(self) -> None:
        """Turn what is the user's own into names: objects and files, which are recorded with their digests."""
        for name in REGISTRIES:
            if not isinstance(getattr(self, name), str | None):
                self._write(name, name_of(name, getattr(self, name)))
        if isinstance(self.out, PathLike):
            self._write("out", fspath(self.out))
        files = [self.plugin] if isinstance(self.plugin, str | Path) else [*self.plugin]
        if isinstance(self.model, str):
            files.append(own_file(self.model))
        self._write("plugin", load_recorded(files))

    def _fill_in(self) -> None:
        """Fill in what was left open."""
        self._fill({"model": defaults(_name(self.dataset))["model"]})
        self._fill(defaults(_name(self.dataset), _name(self.model), self.method))
        self._fill({**PAPER, **self.plays.preset})
        if self.num_clients > 0 and 0 <= self.byzantine_fraction < 1 and self.assumed_byzantine_fraction < 1:
            # else there is no list to speak of, and the checks will say so
            self._fill({"list_size": self.plays.length(self.num_clients, self.assumed_honest)})
        self._fill({"name": self._default_name()})
        self._fill({"out": f"runs/{self.name}-{self.seed}"})

    def _is_open(self, name: str) -> bool:
        return getattr(self, name) is None

    def _fill(self, values: Mapping[str, Any]) -> None:
        """Give each of these settings its value if it is still open."""
        for name in values.keys() & {f.name for f in fields(self)}:
            if self._is_open(name):
                self._write(name, values[name])

    def _write(self, name: str, value: Any) -> None:
        """The one place where a frozen experiment is written to: while it is being made."""
        object.__setattr__(self, name, value)

    def _default_name(self) -> str:
        parts = [self.dataset, self.model, self.method_label]
        parts += [self.attack] if self.attack != "none" else []
        return file_name(*parts)

    def _check_types(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.type is float and type(value) is int:
                self._write(setting.name, float(value))
            else:
                checks.check_type(setting.name, setting.type, value)


FORMERLY = {f.metadata["formerly"]: f.name for f in fields(Experiment) if f.metadata["formerly"]}
"""Settings that were renamed: the old name, and the new one."""


def known_settings(settings: Mapping[str, Any], *, warn: bool) -> Settings:
    """Settings under the names of today; a name that never was one is refused, and what was meant is named."""
    known = [f.name for f in fields(Experiment)]
    for name in settings:
        if name in FORMERLY:
            if warn:
                log.warning("the setting '%s' is now called '%s'; rename it", name, FORMERLY[name])
        elif name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; choose from {', '.join(known)}"
            raise LidflError(f"unknown setting '{name}'{hint}")
    return {FORMERLY.get(name, name): value for name, value in settings.items()}


def file_name(*parts: str) -> str:
    """Parts joined by dashes, with only such characters as every file system takes."""
    return "-".join("".join(c if c.isalnum() or c in "_.+=" else "_" for c in part) for part in parts)


def _share(fraction: float, number: int) -> int:
    """⌊fraction · number⌋ in exact arithmetic."""
    return math.floor(Fraction(str(fraction)) * number)


def _name(spec: str) -> str:
    """The part of a spec before its options."""
    return spec.partition(":")[0]
