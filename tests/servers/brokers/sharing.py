"""One broker shared by all processes of a user: test runs and `make brokers`.

A separate process, the holder, runs the broker. Each process that uses it has a shared lock on a
file. The holder stops the broker once it gets that lock exclusively; the operating system releases
a process's lock however the process exits.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.servers.brokers.cassandra import CassandraServer
from tests.servers.brokers.kafka import KafkaServer
from tests.servers.process import ServerFailed, ServiceMissing

SERVERS = {"kafka": KafkaServer, "cassandra": CassandraServer}

FOLDER = Path(tempfile.gettempdir()) / f"headway-brokers-{os.getuid()}"

_PROJECT = Path(__file__).parents[3]


@contextmanager
def shared(name: str, folder: Path = FOLDER) -> Iterator[str]:
    """Yield the address of the broker that all callers with this folder share; start it if needed.

    Raises:
        JavaMissing: Java is not installed.
        ServiceMissing: the broker's jars are not available.
        ServerFailed: it did not start.
    """
    SERVERS[name]().close()  # a missing Java or jar is raised here, not in the holder
    with _using(name, folder):
        yield (folder / f"{name}.address").read_text()


@contextmanager
def _using(name: str, folder: Path) -> Iterator[IO[str]]:
    """Hold a shared lock while the broker runs; yield the locked file."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / f"{name}.start").open("w") as start, _opened(name, folder) as me:
        fcntl.flock(start, fcntl.LOCK_EX)
        fcntl.flock(me, fcntl.LOCK_SH)  # waits for a holder that is stopping its broker
        if not _is_held(name, folder):
            _start_holder(name, folder)
        fcntl.flock(start, fcntl.LOCK_UN)
        yield me


def _opened(name: str, folder: Path) -> IO[str]:
    return (folder / f"{name}.users").open("w")


def _is_held(name: str, folder: Path) -> bool:
    with (folder / f"{name}.holder").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _start_holder(name: str, folder: Path) -> None:
    """Start the process that runs the broker, and return once the broker accepts connections."""
    log = folder / f"{name}.log"
    with log.open("w") as written:
        holder = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.brokers", "hold", name, str(folder)],
            cwd=_PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=written,
            start_new_session=True,
        )
    assert holder.stdout is not None
    with holder.stdout as printed:
        ready = printed.readline()
    if not ready:
        holder.wait()
        message = f"{name} did not start: {log.read_text()[-4000:]}"
        raise ServerFailed(message)
    holder.returncode = 0  # it outlives this process, which does not wait for it


def hold(name: str, folder: Path) -> None:
    """Run a broker until it has no users; print one line when it accepts connections."""
    with (
        (folder / f"{name}.holder").open("w") as lock,
        _opened(name, folder) as users,
        SERVERS[name]() as server,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / f"{name}.address").write_text(server.address)
        print("ready", flush=True)
        os.close(sys.stdout.fileno())
        fcntl.flock(users, fcntl.LOCK_EX)


def start(folder: Path = FOLDER) -> None:
    """Start every broker that this machine can run, and print the environment variables to set."""
    for name in SERVERS:
        try:
            with shared(name, folder) as address:
                _keep(name, folder)
                print(f"export HEADWAY_TEST_{name.upper()}={address}", flush=True)
        except ServiceMissing as reason:
            print(f"# no {name}: {reason}", flush=True)


def _keep(name: str, folder: Path) -> None:
    """Leave a process behind that uses the broker until `stop` opens a pipe."""
    pipe = folder / f"{name}.stop"
    with suppress(FileExistsError):
        os.mkfifo(pipe)
    with _opened(name, folder) as me:
        fcntl.flock(me, fcntl.LOCK_SH)
        keeper = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _ < "$0"', str(pipe)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[me.fileno()],
            start_new_session=True,
        )
    keeper.returncode = 0


def stop(folder: Path = FOLDER) -> None:
    """Stop what `start` left running; a broker in use by tests runs until they finish."""
    for name in SERVERS:
        pipe = folder / f"{name}.stop"
        with suppress(FileNotFoundError, OSError):  # no keeper is waiting
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
            print(f"{name} was told to end", flush=True)
            pipe.unlink()
