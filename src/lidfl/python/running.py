"""Running an experiment from Python."""

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

from lidfl.errors import LidflError
from lidfl.python.result import Run
from lidfl.python.showing import showing
from lidfl.runs.loop import STOP, Observer, Progress
from lidfl.settings.experiment import Experiment
from lidfl.simulation import simulator


def run(
    experiment: Experiment,
    *,
    resume: bool = False,
    overwrite: bool = False,
    from_round: int = 0,
    progress: bool | None = None,
    callbacks: Observer | Iterable[Observer] = (),
    observe: Observer | None = None,
) -> Run:
    """Run an experiment and return its result; everything is also written to `experiment.out`.

    A run that is interrupted with Ctrl-C saves its state first; `resume=True` goes on from the last saved state,
    and the result is the same, bit for bit, as if it had never stopped. With `from_round` it goes on from an
    earlier one of those that are kept.

    Progress is shown in a terminal and in a notebook; with `progress=False` nowhere, with `progress=True` also
    where the output goes to a file. Callbacks are called with the `Progress` of every round; if one returns
    `lidfl.STOP`, the run ends there, with a summary. `observe` is a callback too.

    >>> result = run(Experiment(rounds=30, out="runs/first"))  # doctest: +SKIP
    >>> result["test_accuracy"], result.modules()  # doctest: +SKIP
    """
    check_experiment(experiment)
    called = checked_callbacks("callbacks", callbacks) + checked_callbacks("observe", observe)
    with showing(experiment, progress) as show:
        watched = together([show, *called] if show else called)
        how = dict(resume=resume, overwrite=overwrite, from_round=from_round)
        simulator.run(experiment, **how, observe=watched)  # type: ignore[arg-type]
    return Run(experiment.out)


def check_experiment(experiment: object) -> None:
    """Refuse what is no experiment."""
    if not isinstance(experiment, Experiment):
        way = "Experiment(**settings)" if isinstance(experiment, Mapping) else "Experiment(…)"
        kind = "None" if experiment is None else f"a {type(experiment).__name__}"
        raise LidflError(f"experiment must be a lidfl.Experiment, not {kind}; write lidfl.run({way})")


def checked_callbacks(name: str, given: Any) -> list[Observer]:
    """The callbacks that are given, one or several; whoever could not be called is refused before round one."""
    several = not callable(given) and isinstance(given, Iterable) and not isinstance(given, str)
    called: list[Any] = [] if given is None else list(given) if several else [given]
    for each in called:
        if not callable(each):
            raise LidflError(f"{name} must be functions that take a lidfl.Progress, not {each!r}")
        if not _takes_one(each):
            raise LidflError(
                f"{name}: {getattr(each, '__name__', each)} cannot be called with one argument; write it to take "
                "the lidfl.Progress of a round"
            )
    return called


def _takes_one(function: Callable[..., object]) -> bool:
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # what is not written in Python may not tell
        return True
    return True


def together(observers: Iterable[Observer]) -> Callable[[Progress], object]:
    """All observers as one, which wants to stop if one of them does."""
    every = list(observers)

    def observe(progress: Progress) -> object:
        answers = [each(progress) for each in every]
        return STOP if any(answer is STOP for answer in answers) else None

    return observe
