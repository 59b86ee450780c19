"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path

import apsw


def facts(folder: Path) -> dict[str, str]:
    """The machine and the versions, for the head of the report."""
    return {
        "system": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores",
        "load before": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
        "file system": _file_system(folder),
        "python": platform.python_version(),
        "sqlite": f"{apsw.sqlite_lib_version()} (apsw), {sqlite3.sqlite_version} (peers)",
        "peers": f"huey {version('huey')}, litequeue {version('litequeue')}",
        "durability": "WAL, synchronous=FULL: an fsync for each commit, for everybody",
    }


def _file_system(folder: Path) -> str:
    best, kind = "", "unknown"
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return kind
    for line in mounts.read_text().splitlines():
        _, place, name, *_ = line.split()
        if str(folder.resolve()).startswith(place) and len(place) >= len(best):
            best, kind = place, name
    return kind
