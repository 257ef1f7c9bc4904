"""The app that `lidfl init-flower` writes: four short files that are the user's to change."""

from pathlib import Path

from lidfl.errors import LidflError

PYPROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "Federated learning that survives a malicious majority"
license = "Apache-2.0"
dependencies = ["lidfl[flower]"]

[tool.flwr.app]
publisher = "you"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

[tool.flwr.app.config]
num-clients = 6
rounds = 20
out = "runs/{name}"
resume = false
overwrite = false
in-flight = 8
wait = 120.0
deadline = 120.0
patience = 10.0
open-roll = false
vouched = 0
log-format = "text"
live = 0
"""
SERVER = '''"""The server: keeps a list of models and lets the nodes vote on it."""

from lidfl import Experiment
from lidfl.flower import server_app

# At most this fraction of the nodes is taken to be malicious; the list is as long as that demands.
app = server_app(Experiment(model="{package}.task:model", num_clients=6, byzantine_fraction=0.6667))
'''
CLIENT = '''"""A node: trains and judges models with its own data."""

from lidfl.flower import client_app
from {package} import task

app = client_app(task)
'''
TASK = '''"""Your model and your data: change these functions, and leave the rest."""


def model():
    """The model."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def data(partition, partitions):
    """The training and validation data of one node: here, its share of scikit-learn's digits."""
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    rows = order[partition::partitions]
    images = torch.from_numpy(digits.images[rows] / 16).float()
    labels = torch.from_numpy(digits.target[rows])
    cut = len(rows) * 4 // 5
    return (images[:cut], labels[:cut]), (images[cut:], labels[cut:])


# def loss(module, images, labels):
#     """What training makes small, and by what this node judges a model; without it, the mean cross-entropy."""
#
#
# def optimizer(parameters, learning_rate, momentum):
#     """What takes the steps; without it, SGD."""
'''
README = """# {name}

Try it with real nodes on this machine:
```
pip install 'lidfl[flower]'
lidfl federation up --app . --nodes 4 --rounds 5
```
Deploy it. On the server, whose name nodes know as `HOST`:
```
lidfl server init federation --hosts HOST
```
On every node, and then give `node/node.key.pub` to the server and fetch `ca.crt` and `signing.key.pub` from it:
```
lidfl node init node
```
On the server, with the nodes' keys in `federation/nodes/`, one file for each, ending in `.pub`:
```
nginx -c $PWD/federation/nginx.conf
lidfl server up federation --app . --config "num-clients=6 resume=true"
```
On every node, each with another partition:
```
lidfl node up node --server HOST:9443 --partition 0 --partitions 6
```
After a crash the same commands go on. The run directory, `out` in `pyproject.toml`, is on the server.
"""


def write_app(folder: Path) -> None:
    """Write the app to a new folder, named after it."""
    if folder.exists() and any(folder.iterdir()):
        raise LidflError(f"{folder} is not empty; name a new folder")
    name = folder.resolve().name
    package = "".join(c if c.isalnum() else "_" for c in name.lower())
    if not package.isidentifier():
        raise LidflError(f"'{name}' cannot name a Python package; let the folder's name start with a letter")
    files = {"pyproject.toml": PYPROJECT, "README.md": README, f"{package}/__init__.py": ""}
    files |= {f"{package}/server_app.py": SERVER, f"{package}/client_app.py": CLIENT, f"{package}/task.py": TASK}
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace("{name}", name).replace("{package}", package))
