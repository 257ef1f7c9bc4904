"""One data set a client: six hospitals whose patients differ, and two that lie; it ends when it is good enough."""

import numpy as np
from sklearn.datasets import load_breast_cancer

import lidfl
from lidfl import Experiment

patients = load_breast_cancer()
x, y = patients.data.astype(np.float32), patients.target

# Every hospital sees tumours of another size: nobody's data is like another's.
by_size = np.array_split(np.argsort(x[:, 0] + np.random.default_rng(0).normal(0, 4, len(x))), 6)
hospitals = [(x[rows], y[rows]) for rows in by_size]


def good_enough(progress):
    """End the run once the best model of the list is right 95 times in 100; any function can be a callback."""
    record = progress.record
    return lidfl.STOP if record.tested and record.best_accuracy > 0.95 else None


experiment = Experiment(
    dataset=hospitals,  # a list with the data of each client; a torch Dataset each would do, too
    byzantine_fraction=0.34,
    attack="lie",
    local_steps=2,
    learning_rate=0.005,
    rounds=100,
    eval_every=1,
    out="runs/hospitals",
)
run = lidfl.run(experiment, overwrite=True, callbacks=good_enough)
print(f"{experiment.num_clients} hospitals, {experiment.num_byzantine} of them lying: {run}")
