"""Facts about the machine on which figures are measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def facts(folder: Path) -> dict[str, str]:
    """Return facts about the machine, for the head of the report."""
    return {
        "system": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores",
        "load before": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
        "file system": _file_system(folder),
        "python": platform.python_version(),
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


def scheduled(pid: int) -> tuple[float, float]:
    """Return the seconds for which a process's threads ran, and for which they waited for a core.

    Source: Documentation/scheduler/sched-stats.rst of Linux.
    """
    ran = waited = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        one, other, _ = (task / "schedstat").read_text().split()
        ran, waited = ran + int(one), waited + int(other)
    return ran / 1e9, waited / 1e9
