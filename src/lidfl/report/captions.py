"""What the figures show, in words and numbers that are counted from the data."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from lidfl.report.lineage import Lineage, Origin, chosen
from lidfl.report.read import MOST_POINTS, RunRecords, Scene, lowest_losses, percent, smallest_margin
from lidfl.report.thinning import every


def count(number: int, noun: str) -> str:
    """A number with its noun: 1 model, 1,500 models."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def went(first: float, last: float) -> str:
    """How a value got from its first to its last."""
    verb = "rose" if last - first > 0.0005 else "fell" if first - last > 0.0005 else "stayed, going"
    return f"{verb} from {first:.3f} to {last:.3f}"


def were(things: Sequence[object]) -> str:
    """The verb for so many things."""
    return "was" if len(things) == 1 else "were"


def thinned(step: int, noun: str) -> str:
    """A sentence on what is left out, if anything is."""
    return "" if step == 1 else f" Every {ordinal(step)} {noun} is drawn, counted back from the last."


def ordinal(number: int) -> str:
    """2nd, 3rd, 4th, 11th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def accuracy(run: RunRecords) -> str:
    """On the accuracy over rounds."""
    tested = run.tested
    best = [(max(line["accuracy"].values()), line["round"] + 1) for line in tested]
    subject = "The best model of the list" if run.experiment.keeps_list else "The single model"
    if len(best) == 1:
        text = f"{subject} was tested once, in round {best[0][1]:,}, and reached {best[0][0]:.3f}"
    else:
        text = f"{subject} {went(best[0][0], best[-1][0])} between rounds {best[0][1]:,} and {best[-1][1]:,}"
        highest, when = max(best)
        text += f", with {highest:.3f} in round {when:,} as its highest" if highest > best[-1][0] + 0.0005 else ""
    deployed = f"What honest clients deploy ended at {tested[-1]['deployed_accuracy']:.3f}."
    dots = " A dot is a model of the list, by its origin." if run.experiment.keeps_list else ""
    return f"{text}. {deployed}{dots}{thinned(every(tested, MOST_POINTS)[1], 'test')}"


def loss(run: RunRecords) -> str:
    """On the validation loss over rounds."""
    curve = lowest_losses(run.lines)
    text = f"The lowest validation loss in the list, a mean over all clients, {went(curve[0][1], curve[-1][1])}."
    return text + thinned(every(curve, MOST_POINTS)[1], "round")


def votes(run: RunRecords) -> str:
    """On the votes."""
    cast: Counter[Origin] = Counter()
    removed = []
    for line in run.lines:
        for model, number in line["votes"].items():
            cast[run.lineage.lives[int(model)].origin] += number
            removed += [number] if int(model) in line["removed"] else []
    total = sum(cast.values()) or 1
    voters, attackers = run.experiment.num_clients, run.experiment.num_byzantine
    text = f"{attackers} of {voters} voters are attackers. " if attackers else f"All {voters} voters are honest. "
    shares = [
        f"{percent(cast[origin] / total)} to models {_described(origin)}" for origin in Origin if cast[origin]
    ]
    text += f"First choices went {listed(shares)}." if shares else "No vote was cast."
    if removed:
        mean = sum(removed) / len(removed)
        text += f" A model that was voted out had {mean:.1f} votes on average, {max(removed)} at most."
    return (
        f"{text} A bar is a round, a piece of it a candidate.{thinned(every(run.lines, MOST_POINTS)[1], 'round')}"
    )


def _described(origin: Origin) -> str:
    return {
        Origin.CLEAN: "that no attacker had touched",
        Origin.TAINTED: "trained honestly on a poisoned ancestor",
        Origin.POISONED: "with an attacker's update",
    }[origin]


def lineage(tree: Lineage) -> str:
    """On the family tree: what was born, what was voted out, and the line that lived on."""
    return " ".join([_births(tree), _held(tree), _line(tree), _drawn(tree)])


def _births(tree: Lineage) -> str:
    born = tree.born
    poisoned = [life for life in born if life.origin is Origin.POISONED]
    if not poisoned:
        return f"None of {count(len(born), 'candidate')} was poisoned."
    at_once = [life for life in poisoned if life.rejected]
    text = f"{len(poisoned):,} of {count(len(born), 'candidate')} {were(poisoned)} poisoned, "
    text += f"and {len(at_once):,} of them {were(at_once)} voted out in the round of their birth"
    rest = [tree.length(life) for life in poisoned if not life.rejected]
    return text + (f"; the others stayed for {median(rest):.0f} rounds in the median." if rest else ".")


def _held(tree: Lineage) -> str:
    held = tree.rounds_with_clean()
    when = f"every one of {tree.rounds:,} rounds" if held == tree.rounds else f"{held:,} of {tree.rounds:,} rounds"
    return f"After {when} the list held a model that no attacker had ever touched."


def _line(tree: Lineage) -> str:
    trainings = [life for life in tree.line if life.born]
    if not trainings:
        return "The best model of the last list is one of the initial ones."
    bad = sum(life.origin is Origin.POISONED for life in trainings)
    by = f"{bad:,} of them by an attacker" if bad else "none of them by an attacker"
    best = tree.line[-1].model
    return f"The bold line leads to the last list's best model, {best}, in {count(len(trainings), 'step')}, {by}."


def _drawn(tree: Lineage) -> str:
    drawn = chosen(tree)
    text = "A line is a model's life in the list"
    if drawn.shortest:
        hidden = sum(not life.rejected for life in tree.lives.values()) - len(drawn.lives)
        short = f"off the bold line that stayed for at most {count(drawn.shortest, 'round')}"
        text += f" ({count(hidden, 'model')} {short} are left out)"
    text += ", a dot one that was voted out at birth"
    text += f" (every {ordinal(drawn.step)} is drawn; the strip below counts all)." if drawn.step > 1 else "."
    text += f" Above the dotted line, at {drawn.bend:.1f}, the scale is compressed." if drawn.bend else ""
    endless = any(life.loss is None for life in [*drawn.lives, *drawn.rejected])
    return text + (" A loss that is not finite, or not known, is at the upper edge." if endless else "")


def margin(run: RunRecords) -> str:
    """On the closest vote."""
    smallest = smallest_margin(run.lines)
    if smallest is None:
        return ""
    ballots, when = smallest
    told = sum(line.get("margin") is not None for line in run.lines)
    more = count(ballots, "more colluding ballot")
    text = f"The closest vote was in round {when:,}: {more} would have removed the honest favourite."
    width = -(-told // MOST_POINTS)
    return text + (f" The line shows the smallest margin of every {width} rounds." if width > 1 else "")


def phases(run: RunRecords) -> str:
    """On where the time went."""
    found = run.seconds_by_phase()
    phase, seconds = next(iter(found.items()))
    each = run.seconds / run.rounds_done * 1000
    text = f"{count(run.rounds_done, 'round')} took {run.seconds:.1f} s, {each:.1f} ms each"
    return f"{text}; {percent(seconds / run.seconds)} of it went into {phase}."


def curves(scene: Scene, methods: Sequence[str], drawn: Sequence[str]) -> str:
    """On the curves of a sweep."""
    numbers = sorted({len(cell.values) for cell in scene.grid.cells.values()})
    seeds = count(numbers[0], "run") if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]} runs"
    text = f"Lines are means over {seeds}, bands one standard deviation to each side. "
    text = text if numbers[-1] > 1 else "Each line is one run, so there is no band. "
    text += _winners(scene)
    if len({run.experiment.rounds for run in scene.runs}) > 1:
        text += " A dot is the end of runs with fewer rounds than others."
    diverged = Counter(scene.method(run) for run in scene.runs if run.diverged)
    if diverged:
        names = listed([f"{count(number, 'run')} of {method}" for method, number in sorted(diverged.items())])
        text += f" The model diverged in {names}; its accuracy is kept for the rounds left."
    if len(drawn) < len(methods):
        text += f" Only the {len(drawn)} best of {len(methods)} methods are drawn; the table has them all."
    return text + _tests_drawn(scene)


def _tests_drawn(scene: Scene) -> str:
    drawn = max(len(run.curve) for run in scene.runs)
    tested = max(-(-run.experiment.rounds // run.experiment.eval_every) for run in scene.runs)
    return f" Of up to {tested:,} tests of a run up to {drawn} are drawn." if tested > drawn else ""


def _winners(scene: Scene) -> str:
    grid = scene.grid
    if len(grid.rows) == 1:
        values = [grid.cell(grid.rows[0], attack).mean for attack in grid.columns]
        span = f"{min(values):.3f}" if len(values) == 1 else f"{min(values):.3f} to {max(values):.3f}"
        return f"{grid.rows[0]} ends at {span}."
    wins = Counter(best_method(scene, attack) for attack in grid.columns)
    if len(grid.columns) == 1:
        ranked = sorted(((grid.cell(row, grid.columns[0]), row) for row in grid.rows), key=lambda c: -c[0].mean)
        return f"At the end {listed([f'{row} has {cell.mean:.3f}' for cell, row in ranked if cell.values][:8])}."
    parts = [f"{method} under {number} of {len(grid.columns)} attacks" for method, number in wins.most_common()]
    return f"Highest at the end: {listed(parts)}."


def best_method(scene: Scene, attack: str) -> str:
    """The method of the highest mean accuracy under an attack."""
    cells = {row: scene.grid.cell(row, attack) for row in scene.grid.rows}
    return max((row for row in cells if cells[row].values), key=lambda row: cells[row].mean)


def heat_map(scene: Scene, drawn: Sequence[str]) -> str:
    """On the heat map: what the worst attack leaves of each method."""
    worst = [(method, *worst_case(scene, method)) for method in drawn[:8]]
    parts = [f"{method} {mean:.3f} ({attack})" for method, mean, attack in worst]
    return f"Final test accuracy. The worst attack leaves {listed(parts)}."


def worst_case(scene: Scene, method: str) -> tuple[float, str]:
    """A method's lowest mean accuracy and the attack that brings it there."""
    cells = {attack: scene.grid.cell(method, attack) for attack in scene.grid.columns}
    return min((cell.mean, attack) for attack, cell in cells.items() if cell.values)
