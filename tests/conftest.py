"""For all tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no failure: what a test may cost is not judged by the clock.
settings.register_profile("mycel", deadline=None)
settings.load_profile("mycel")
