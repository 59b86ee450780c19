"""Checks of a SQLite file: permissions, integrity, disk space, clock."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import apsw

from headway.cli.doctor import Finding, ok, problem, warning
from headway.cli.terminal import rounded_duration
from headway.stores.sqlite.disk import DiskSpace
from headway.stores.sqlite.timing import CLOCK_LIMIT_MS, skew_ms, system_clock

FIRST_SOUND = (3, 51, 3)
"""Earlier versions of SQLite could corrupt a database in WAL mode when the log was reset.

Source: https://www.sqlite.org/wal.html#walresetbug
"""
SCARCE = 0.05
LITTLE_BYTES = 200_000_000
_SHOWN = 5


def check_library() -> list[Finding]:
    """Check that the SQLite library does not have the corruption bug."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < FIRST_SOUND:
        hint = "install a current apsw wheel, which includes SQLite"
        return [problem("sqlite", f"SQLite {version} can corrupt a database", hint)]
    return [ok("sqlite", f"SQLite {version}")]


def check_permissions(path: Path) -> list[Finding]:
    """Check that the file and its folder are writable, and that other users cannot open it."""
    findings: list[Finding] = []
    for place in (path, path.parent):
        if not os.access(place, os.W_OK):
            hint = "make the file and its folder writable for the user that runs Headway"
            findings.append(problem("permissions", f"{place} is not writable", hint))
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        hint = f"chmod 600 {path}"
        findings.append(warning("permissions", f"other users can open it (mode {mode:04o})", hint))
    return findings or [ok("permissions", f"writable, mode {mode:04o}")]


def check_room(path: Path, reserve_bytes: int) -> list[Finding]:
    """Check the free space of its device.

    Args:
        reserve_bytes: Free space below which the store refuses new jobs.
    """
    short = DiskSpace(path, reserve_bytes).shortage()
    if short is not None:
        return [problem("room", f"new jobs are refused: {short.message}", "free some space")]
    usage = shutil.disk_usage(path.parent)
    share = usage.free / usage.total
    found = f"{usage.free / 1e9:.1f} GB free ({share:.0%}), the file is {_size(path) / 1e6:.1f} MB"
    if share < SCARCE or usage.free < LITTLE_BYTES:
        return [warning("room", found, "free some space: on a full device, new jobs are refused")]
    return [ok("room", found)]


def check_machine_clock(path: Path) -> list[Finding]:
    """Check this process's clock against that of the machine that has the file."""
    skew = skew_ms(system_clock, path.with_name(f"{path.name}-door"))
    if skew is None:
        return []
    if abs(skew) > CLOCK_LIMIT_MS:
        side = "ahead of" if skew > 0 else "behind"
        found = f"this process's clock is {rounded_duration(abs(skew))} {side} that of the store"
        return [
            problem("file clock", found, "correct it: processes with a wrong clock may not write")
        ]
    return [ok("file clock", "this process's clock agrees with the machine of the file")]


def check_integrity(path: Path) -> list[Finding]:
    """Check the file's integrity and its journal mode.

    This reads the whole file, but writes nothing and takes no lock.
    """
    findings: list[Finding] = []
    try:
        db: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            mode = str(db.pragma("journal_mode"))
            rows = db.execute(f"PRAGMA integrity_check({_SHOWN})")
            wrong = [line for row in rows for line in str(row[0]).splitlines()][:_SHOWN]
        finally:
            db.close()
    except (apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError, apsw.AuthError) as error:
        # The file may be sound: this user may not open it, or may not create its log.
        found = f"not checked, because SQLite cannot open it: {error}"
        hint = "run headway doctor as a user that may write the file and its folder"
        return [problem("integrity", found, hint)]
    except apsw.Error as error:
        hint = "stop all workers, keep the file, restore a backup"
        return [problem("integrity", f"SQLite cannot read it: {error}", hint)]
    if mode != "wal":
        hint = "open it once with headway migrate"
        findings.append(problem("journal", f"the journal mode is {mode}, not wal", hint))
    if wrong != ["ok"]:
        hint = "stop all workers, keep the file, restore a backup"
        findings += [problem("integrity", one, hint) for one in wrong]
    else:
        findings.append(ok("integrity", f"SQLite found no damage, journal mode {mode}"))
    return findings


def _size(path: Path) -> int:
    parts = (path, path.with_name(f"{path.name}-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())
