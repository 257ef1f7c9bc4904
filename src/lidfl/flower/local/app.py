"""An experiment as a Flower app, written to a folder."""

from pathlib import Path

from lidfl.flower.local.shares import write_shares
from lidfl.seeds import seed_for
from lidfl.settings.experiment import Experiment
from lidfl.settings.world import load_data

SERVER_APP = """from pathlib import Path

from lidfl.flower import server_app
from lidfl.flower.local.audit import open_audit
from lidfl.settings.experiment import Experiment

app = server_app(Experiment.from_toml(Path({experiment!r})), audit=open_audit)
"""
CLIENT_APP = """from lidfl.flower import client_app
from lidfl.flower.local.shares import FiledTask
from lidfl.plugins import load_recorded

load_recorded({plugin!r})
app = client_app(FiledTask({data!r}), testing=True)
"""
PROJECT = """[project]
name = "federation"
version = "1.0.0"
description = "An experiment of lidfl on loopback"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "lidfl"

[tool.flwr.app.components]
serverapp = "federation.server_app:app"
clientapp = "federation.client_app:app"

[tool.flwr.app.config]
out = ""
rounds = {rounds}
resume = false
in-flight = 8
deadline = 120.0
patience = 10.0
log-format = "text"
live = 0
wait = 120.0
open-roll = false
vouched = 0
"""


def write_experiment_app(experiment: Experiment, settings: Path, home: Path) -> Path:
    """Write the app and its nodes' data to folders in `home`; the server reads the experiment from `settings`."""
    data, app = home / "data", home / "app"
    data.mkdir()
    write_shares(load_data(experiment), experiment.model, data, seed_for(experiment.seed, "model"))
    texts = {
        "pyproject.toml": PROJECT.format(rounds=experiment.rounds),
        "federation/__init__.py": "",
        "federation/server_app.py": SERVER_APP.format(experiment=str(settings)),
        "federation/client_app.py": CLIENT_APP.format(data=str(data), plugin=experiment.plugin),
    }
    (app / "federation").mkdir(parents=True)
    for path, text in texts.items():
        (app / path).write_text(text)
    return app
