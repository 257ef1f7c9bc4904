"""What all tests share."""

from hypothesis import settings

# How long an example takes depends on the machine and on what else it does: no test fails for that.
settings.register_profile("lidfl", deadline=None)
settings.load_profile("lidfl")
