"""From nothing to a plotted comparison: `marimo edit examples/compare.py`, or `python examples/compare.py`."""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import marimo as mo

    import lidfl

    return lidfl, mo


@app.cell
def _(mo):
    mo.md("""
    # Federated learning with a malicious majority
    Twenty clients share handwritten digits; twelve of them send the opposite of what they learned, and vote for the
    worst model. How do rules fare that make one model of all updates, and how does a list that clients vote on?
    """)
    return


@app.cell
def _():
    settings = dict(dataset="digits", byzantine_fraction=0.6, attack="sign_flip", rounds=40, eval_every=5)
    methods = ["fedavg", "cwm", "lidfl", "lidfl-ranked"]
    return methods, settings


@app.cell
def _(lidfl, methods, settings):
    runs = [
        lidfl.run(lidfl.Experiment(method=method, out=f"runs/compare/{method}", **settings), overwrite=True)
        for method in methods
    ]
    return (runs,)


@app.cell
def _(runs):
    first, *others = runs
    chart = first.plot(*others)
    chart.properties(title="What honest clients deploy, by method")
    return (chart,)


@app.cell
def _(methods, mo, runs):
    mo.md("\n".join(f"- **{method}**: {run['deployed_accuracy']:.3f}" for method, run in zip(methods, runs)))
    return


@app.cell
def _(runs):
    runs[-1].report()
    return


if __name__ == "__main__":
    app.run()
