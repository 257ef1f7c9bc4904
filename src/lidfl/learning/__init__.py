"""One client's work, plainly, and the same for many at once: parameters, models, the local update, engines."""
