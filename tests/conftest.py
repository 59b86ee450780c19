"""Settings for every test: no Hypothesis deadlines, and nothing from the caller's environment."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from functools import cache
from inspect import isclass

import httpx
import httpx._transports.default as transport
import pytest
from hypothesis import HealthCheck, settings

# The duration of an example depends on the load of the machine, not on whether the code is right.
settings.register_profile("headway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headway")

# A test must never access the store, or read the settings, of the user who runs it.
for _name in [name for name in os.environ if name.startswith("HEADWAY_")]:
    if not _name.startswith(("HEADWAY_REQUIRE_SERVICES", "HEADWAY_TEST_")):
        del os.environ[_name]

# Each client loads the certificates of all authorities again: 40 ms, more than most tests take.
httpx.create_ssl_context = cache(httpx.create_ssl_context)
transport.create_ssl_context = httpx.create_ssl_context  # pyright: ignore[reportPrivateImportUsage]

pytest_plugins = ["tests.servers.fixtures", "tests.servers.stores"]

_MEMORY = "/dev/shm"  # noqa: S108  (pytest creates a private folder in it)
_ROOM = 4 << 30
"""In bytes: four test processes write 1 GiB, most of it PostgreSQL data."""


def pytest_configure(config: pytest.Config) -> None:
    """Put files and servers of quick tests in memory if there is room; none of them cuts the power.

    A test of a SQLite store uses a tenth less processor time there, and never waits for a device.
    Slow tests write too much for that.
    """
    if config.getoption("markexpr") == "not slow" and os.access(_MEMORY, os.W_OK):
        found = os.statvfs(_MEMORY)
        room = found.f_bavail * found.f_frsize
        # Some tests write programs and execute them.
        if room >= _ROOM and not found.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from collected tests, all of which live until the end.

    Scanning them took a tenth of the collection time, and 0.7 s per scan afterwards. What the
    tests of the systems then import takes 0.15 s per scan, so that full collections are rarer, too.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(5_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, obj: object
) -> list[pytest.Item] | None:
    """Skip classes that are marked slow as a whole if no slow tests are run: thousands of cases."""
    if collector.config.getoption("markexpr") != "not slow" or not isclass(obj):
        return None
    # Only marks from its own decorators are in a list; inherited ones are a list or a single mark.
    marks = vars(obj).get("pytestmark")
    slow = isinstance(marks, list) and pytest.mark.slow.mark in marks
    return [] if slow else None
