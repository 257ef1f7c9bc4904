"""The results that are kept of real federations are those of the code that is here."""

import pytest

from tests.flower.fingerprint import ROOT, fingerprint


def test_the_kept_results_of_real_federations_are_not_older_than_the_code() -> None:
    """It says so and does not fail: a run takes half an hour of a machine of its own."""
    kept = (ROOT / "results" / "federation.txt").read_text()
    told = next((line.split()[1] for line in kept.splitlines()[:5] if line.startswith("code ")), "none")
    if told != fingerprint():
        pytest.skip("results/federation.txt is of other code; run make test-federation")
    assert " failed" not in kept.splitlines()[-1]
