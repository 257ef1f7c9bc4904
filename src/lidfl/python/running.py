"""Running an experiment from Python."""

from collections.abc import Callable, Iterable

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
    called = [callbacks] if callable(callbacks) else list(callbacks)
    called += [observe] if observe else []
    with showing(experiment, progress) as show:
        watched = together([show, *called] if show else called)
        how = dict(resume=resume, overwrite=overwrite, from_round=from_round)
        simulator.run(experiment, **how, observe=watched)  # type: ignore[arg-type]
    return Run(experiment.out)


def together(observers: Iterable[Observer]) -> Callable[[Progress], object]:
    """All observers as one, which wants to stop if one of them does."""
    every = list(observers)

    def observe(progress: Progress) -> object:
        answers = [each(progress) for each in every]
        return STOP if any(answer is STOP for answer in answers) else None

    return observe
