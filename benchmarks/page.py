"""benchmarks/README.md from what was measured."""

from typing import Any

PEER_TARGETS = {
    ("ByzFL", "lr"): 6.0,
    ("pfl", "lr"): 4.5,
    ("Flower", "lr"): 7.0,
    ("ByzFL", "cnn"): 3.5,
    ("pfl", "cnn"): 3.5,
    ("Flower", "cnn"): 3.5,
}

HEAD = """# Benchmarks

`make bench` measures all of this and writes this page, `results.json` and `scaling.svg`; it says
which ratios fell below 80 % of those that are kept here, if they come from the same kind of processor.
`make bench-check`, a part of the gate, measures the first table again and fails when a ratio falls below half of
its target, which any machine reaches. Times are the fastest of several turns, contestants taking turns in one
process; compare ratios, not milliseconds.

The **plain loop** is what everybody writes first: per client a copy of an `nn.Module`, `torch.optim.SGD` and a
`DataLoader`, for evaluation too; it remembers the losses that it knows, as ours does. Setting: the paper's FEMNIST,
35 clients, 25 local steps, batches of 32 (LR) or 64 (CNN), 60 % Byzantine.
"""


def page(results: dict[str, Any]) -> str:
    """The whole page."""
    return "\n".join(
        [
            *(HEAD, _machine(results), _workloads(results), _peers(results), _rules(results["rules"])),
            *(_long_run(results), _scaling(), ""),
        ]
    )


def _machine(results: dict[str, Any]) -> str:
    m = results["machine"]
    return (
        f"Measured at commit `{results['commit']}` on {m['processor']}, {m['threads']} threads, "
        f"torch {m['torch']}, Python {m['python']}, {m['system']}, with {results['data']}. "
        "A large float32 matrix product reaches "
        f"{results['gemm_peak'] / 1e9:.0f} GFLOP/s.\n"
    )


def _workloads(results: dict[str, Any]) -> str:
    rows = ["## Beside the plain loop", "", "| work | plain | ours | ratio | target | of GEMM peak |"]
    rows.append("|---|---:|---:|---:|---:|---:|")
    for work in results["workloads"]:
        ratio = work["plain"] / work["ours"]
        peak = f"{work['flops'] / work['ours'] / results['gemm_peak']:.0%}" if work["flops"] else ""
        target = "" if work["target"] == 1 else f"≥ {work['target']:g}×"
        cells = [work["name"], _ms(work["plain"]), _ms(work["ours"]), f"**{ratio:.1f}×**", target, peak]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join([*rows, ""])


def _peers(results: dict[str, Any]) -> str:
    rows = [
        "## Beside peers",
        "",
        "One round of ordinary federated learning: all 35 clients train, one aggregate.",
        "",
    ]
    rows += ["| model | rule | framework | a round | ours is | target |", "|---|---|---|---:|---:|---:|"]
    ours = {(r["model"], r["rule"]): r["seconds"] for r in results["peers"] if r.get("name") == "lidfl"}
    left_out: dict[str, None] = {}
    for row in results["peers"]:
        if "left_out" in row:
            left_out[row["left_out"]] = None
            continue
        ratio = row["seconds"] / ours[row["model"], row["rule"]]
        faster = "" if row["name"] == "lidfl" else f"**{ratio:.1f}×** faster"
        target = PEER_TARGETS.get((row["name"], row["model"]))
        goal = f"≥ {target:g}×" if target else ""
        cells = [row["model"].upper(), row["rule"], row["name"], _ms(row["seconds"]), faster, goal]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join([*rows, "", *left_out, ""])


RULE_TARGETS = 3.0, 2.0
"""How many times as fast as ByzFL's a rule shall be, and at most how many times its input it shall hold."""


def _rules(found: list[dict[str, Any]]) -> str:
    """Aggregators beside ByzFL's own; what misses a target is in bold."""
    faster, most = RULE_TARGETS
    rows = [
        "## Aggregators beside ByzFL's",
        "",
        "Time of one processor for one call, and the peak of memory as a multiple of the input, each call in a",
        f"process of its own. Targets: {faster:g} times as fast, {most:g} times the input at most; bold misses.",
        "",
        "| updates | rule | lidfl | memory | ByzFL | memory | ours is |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in found:
        ours, theirs = row["lidfl"], row["ByzFL"]
        ratio = theirs["seconds"] / ours["seconds"] if ours and theirs else None
        times = "" if ratio is None else f"{ratio:.1f}× faster"
        cells = [
            "{} × {:,}".format(*row["shape"]),
            f"`{row['rule']}`".replace("|", "\\|"),
            *_call(ours, most),
            *(_call(theirs) if row["peer"] else ("", "")),
            f"**{times}**" if ratio is not None and ratio < faster else times,
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join([*rows, ""])


def _call(found: dict[str, float] | None, most: float = float("inf")) -> tuple[str, str]:
    """Time and memory of a call as text."""
    if found is None:
        return "given up", ""
    memory = f"{found['memory']:.1f}×"
    return _ms(found["seconds"]), f"**{memory}**" if round(found["memory"], 1) > most else memory


def _long_run(results: dict[str, Any]) -> str:
    seconds = dict(results["long_run"])
    total = seconds.pop("total")
    rows = ["## A long run", "", f"1,500 rounds of LiD-FL (LR, 60 %, sign flip) took {total:.1f} s:", ""]
    rows += ["| phase | seconds | share |", "|---|---:|---:|"]
    rows += [f"| {phase} | {value:.2f} | {value / total:.1%} |" for phase, value in seconds.items()]
    note = "Protocol is the server: drawing, checking replies, the list. Bookkeeping is all the rest: records,\n"
    note += "checkpoints and a live display."
    return "\n".join([*rows, "", note, ""])


def _scaling() -> str:
    return "## How a round grows\n\n![A round's time by clients, model size and list size](scaling.svg)\n"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"
