"""Property tests: random on a developer's machine, the same examples every time in CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# How fast examples are drawn depends on the machine's load, not on the code under test.
SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)

settings.register_profile("local", deadline=None, suppress_health_check=SLOW)
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
