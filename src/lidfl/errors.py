"""The one kind of error that is the user's to mend."""


class LidflError(Exception):
    """A mistake in what the user asked for; the message is one line and names the fix."""
