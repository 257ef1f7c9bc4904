"""The server: keeps a list of models and lets the nodes vote on it."""

from lidfl import Experiment
from lidfl.flower import server_app

# At most this fraction of the nodes is taken to be malicious; the list is as long as that demands.
app = server_app(Experiment(model="flower_app.task:model", num_clients=6, byzantine_fraction=0.6667))
