"""A run while it goes: a page, its numbers as JSON, and metrics for Prometheus, all on one port of this machine.

| module | what it holds |
|---|---|
| `watch` | what has been seen so far: rounds, nodes, alerts |
| `metrics` | the same as Prometheus reads it |
| `serving` | the port |
| `page.html` | the page, which asks for news every second and needs nothing else |

A server does not know who is honest, and neither does this: only a simulation's page marks attackers' models.
"""
