"""How the processes of a federation end."""

import signal

import pytest

pytest.importorskip("flwr", reason="pip install 'lidfl[flower]'")

from lidfl.flower.local.processes import interrupted_once


def test_the_first_interrupt_counts_and_those_that_follow_do_not() -> None:
    def impatient() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        impatient()
    assert signal.getsignal(signal.SIGINT) is before
