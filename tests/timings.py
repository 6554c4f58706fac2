"""Timing that takes next to no time, for tests in which the clock is not the point."""

import pytest


def short_timing(patch: pytest.MonkeyPatch) -> None:
    """Networks of a release are timed for a few calls each."""
    patch.setattr("ldrf.shipping.release.LEAST", 0.0)
    patch.setattr("ldrf.deployment.stopwatch.BLOCK", 0.002)
    patch.setattr("ldrf.deployment.stopwatch.SURE", 1.0)
