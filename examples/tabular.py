"""A table of one's own: rows of measurements, a class for each, and 60 % of the clients lying about theirs."""

import torch
from sklearn.datasets import load_wine

import lidfl
from lidfl import Experiment

table = load_wine()  # 178 wines, 13 measurements, 3 growers: any arrays do
x, y = table.data, table.target


def network(image_shape, num_classes, *, hidden: int = 16):
    """A small perceptron; rows of features come as images of shape (1, 1, features)."""
    features = image_shape[-1]
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(features, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, num_classes),
    )


settings = dict(dataset=(x, y), model=network, num_clients=10, learning_rate=0.05, rounds=30, engine="loop")
mean = lidfl.run(Experiment(method="fedavg", out="runs/wine-fedavg", **settings), overwrite=True)
kept = lidfl.run(Experiment(method="lidfl", out="runs/wine-lidfl", **settings), overwrite=True)
print(f"deployed accuracy: one mean of all {mean['deployed_accuracy']:.2f}, a list {kept['deployed_accuracy']:.2f}")

# A client judges the list on its own rows and takes what serves it best.
mine = kept.pick(x[::10], y[::10])
print(f"model {mine.id} of {list(mine.losses)}; the first wines are of growers {kept.predict(x[:5], mine.module)}")
