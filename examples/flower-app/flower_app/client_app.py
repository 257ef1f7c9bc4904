"""A node: trains and judges models with its own data."""

from lidfl.flower import client_app
from flower_app import task

app = client_app(task)
