"""An attack of one's own: `lidfl run --plugin examples/whisper.py --attack whisper:volume=0.5`."""

import lidfl


@lidfl.attack
def whisper(honest, *, volume: float = 1.0):
    """The honest mean reversed, as long as an honest update: whoever looks at lengths alone does not notice.

    What an attack names among its parameters, it is given: here the updates of all honest clients, a row each. What
    comes after the * are its options.
    """
    mean = honest.mean(0)
    usual = honest.norm(dim=1).mean()
    return -volume * usual * mean / mean.norm().clamp_min(1e-12)
