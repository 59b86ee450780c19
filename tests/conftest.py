"""What holds for every test: no deadlines of Hypothesis, and nothing from the caller's settings."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("headway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headway")

# A test must never reach the store, or read the settings, of whoever runs it.
for _name in [name for name in os.environ if name.startswith("HEADWAY_")]:
    if not _name.startswith(("HEADWAY_REQUIRE_SERVICES", "HEADWAY_TEST_")):
        del os.environ[_name]

pytest_plugins = ["tests.servers.fixtures", "tests.servers.stores"]
