"""What holds for every test: no deadlines of Hypothesis, and nothing from the caller's settings."""

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

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("headway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headway")

# A test must never reach the store, or read the settings, of whoever runs it.
for _name in [name for name in os.environ if name.startswith("HEADWAY_")]:
    if not _name.startswith(("HEADWAY_REQUIRE_SERVICES", "HEADWAY_TEST_")):
        del os.environ[_name]

# Each client reads the certificates of all authorities again: 40 ms, more than most tests take.
httpx.create_ssl_context = cache(httpx.create_ssl_context)
transport.create_ssl_context = httpx.create_ssl_context  # pyright: ignore[reportPrivateImportUsage]

pytest_plugins = ["tests.servers.fixtures", "tests.servers.stores"]

_MEMORY = "/dev/shm"  # noqa: S108  (pytest makes a folder in it that only this user can read)
_ROOM = 4 << 30
"""Bytes: four test processes write 1 GiB, most of it data of PostgreSQL."""


def pytest_configure(config: pytest.Config) -> None:
    """Put the files and servers of quick tests in memory if there is room: none cuts the power.

    A test of a SQLite store takes a tenth less processor time there, and waits for no device. Slow
    tests write too much for that.
    """
    if config.getoption("markexpr") == "not slow" and os.access(_MEMORY, os.W_OK):
        found = os.statvfs(_MEMORY)
        room = found.f_bavail * found.f_frsize
        # Some tests write programs and run them.
        if room >= _ROOM and not found.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps garbage collection off what is collected: all of it stays until the end.

    To look through it took a tenth of collecting, and 0.7 s each time afterwards.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, obj: object
) -> list[pytest.Item] | None:
    """Leaves out classes that are slow whole, where slow tests are not run: thousands of cases."""
    if collector.config.getoption("markexpr") != "not slow" or not isclass(obj):
        return None
    # Of its own decorators; what a class inherits is a list or a single mark.
    marks = vars(obj).get("pytestmark")
    slow = isinstance(marks, list) and pytest.mark.slow.mark in marks
    return [] if slow else None
