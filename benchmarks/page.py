"""benchmarks/README.md from what was measured."""

from typing import Any

PEER_TARGETS = {
    ("ByzFL", "lr"): 6.0,
    ("pfl", "lr"): 4.5,
    ("Flower", "lr"): 7.0,
    ("ByzFL", "cnn"): 1.3,
    ("pfl", "cnn"): 1.3,
    ("Flower", "cnn"): 1.3,
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
        [HEAD, _machine(results), _workloads(results), _peers(results), _long_run(results), _scaling(), ""]
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
