"""Repeated failures of the server and its connections, from which the work must recover itself.

Only the server is killed: the same processes meet fault after fault and are never restarted.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from redis import Redis

from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.torture.checker import Violation
from tests.torture.evidence import Evidence
from tests.torture.plan import WORK
from tests.torture.process import Role, witness_file
from tests.torture.rig import Rig
from tests.torture.site import ServerSite, Site

WORKERS = 3
LEASE = "15s"
"""Longer than the server is ever unreachable."""
SOONEST_S, LATEST_S = 0.2, 1.0
AWAY_S = 1.5
"""The longest time that the connection is closed or silent."""
GOES_ON_S = 20.0
"""Maximum time from the end of a fault until work resumes: long, for a busy machine."""

Fault = Callable[[random.Random], None]


@dataclass(slots=True)
class Faults:
    """The faults of a run.

    Attributes:
        times: how often each occurred, by name.
        longest_s: longest time from the end of a fault until work resumed, by name.
    """

    times: dict[str, int] = field(default_factory=dict[str, int])
    longest_s: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def summary(self) -> str:
        """Return a summary for people."""
        return ", ".join(
            f"{count} {name} (work after {self.longest_s[name]:.1f} s)"
            for name, count in sorted(self.times.items())
        )


def fail_again_and_again(
    folder: Path, site: Site, seed: int, seconds: float, say: Callable[[str], None]
) -> tuple[Evidence, list[Violation], Faults]:
    """Run the rig.

    Args:
        folder: empty.
        site: a server of our own, behind a proxy.
        seed: seed of all random choices.
        seconds: how long faults are caused; each at least once, however short this is.
        say: prints a line.

    Returns:
        The evidence, the violations, and the faults.
    """
    assert isinstance(site, ServerSite), "a file has no server that can fail"
    rig = Rig(folder, site, seed, calm=False, say=say, answered_s=1.0)
    role = {"folder": folder, "seed": seed}
    for number in range(WORKERS):
        rig.start(
            Role(
                name=f"worker {number}",
                lane=WORK,
                concurrency=12,
                lease=LEASE,
                dwell_s=0.06,
                fails=0.05,
                **role,
            )
        )
    for number in range(2):
        rig.start(Role(name=f"maker {number}", jobs=-1, batch=12, pause_s=0.05, calls=0.15, **role))
    found: list[Violation] = []
    faults = _strike(rig, site, seconds, found)
    say("no more faults: what is left is worked off")
    rig.end()
    seen, violations = rig.verdict()
    return seen, found + violations, faults


def _strike(rig: Rig, site: ServerSite, seconds: float, found: list[Violation]) -> Faults:
    chance = random.Random(f"faults {rig.seed}")
    known = faults_of(site)
    work = Work(witness_file(rig.folder))
    faults = Faults()
    work.next_s()
    end = time.monotonic() + seconds
    waiting: list[str] = []
    while (time.monotonic() < end or len(faults.times) < len(known)) and not rig.failed():
        waiting = waiting or chance.sample(list(known), len(known))
        name = waiting.pop()
        time.sleep(chance.uniform(SOONEST_S, LATEST_S))
        known[name](chance)
        faults.times[name] = faults.times.get(name, 0) + 1
        took = work.next_s()
        faults.longest_s[name] = max(took, faults.longest_s.get(name, 0.0))
        if took >= GOES_ON_S:
            found.append(Violation("stuck", f"nothing was done for {took:.0f} s after: {name}"))
        if sum(faults.times.values()) % 10 == 0:
            rig.say(f"{sum(faults.times.values())} faults")
    return faults


class Work:
    """Waits for reports of handlers to the witness.

    Args:
        path: path of the witness's file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def next_s(self) -> float:
        """Return the seconds from now until a handler starts."""
        self._file.seek(0, os.SEEK_END)
        begin = time.monotonic()
        while (took := time.monotonic() - begin) < GOES_ON_S:
            if b'"begin"' in self._file.read():
                return took
            time.sleep(0.01)
        return took


# ---------------------------------------------------------------------------------------- faults


def faults_of(site: ServerSite) -> dict[str, Fault]:
    """Return the possible faults, by name; each is over when its function returns."""
    way, server = site.way, site.server
    assert way is not None
    found: dict[str, Fault] = {
        "connections reset": lambda _: way.reset(),
        "nobody let in": lambda chance: _meanwhile(way.refuse, way.resume, chance),
        "silence": lambda chance: _meanwhile(way.stall, way.resume, chance),
        "reply cut off": lambda chance: way.cut_after(chance.randint(1, 2_000)),
        "reply lost": lambda chance: way.lose_reply_to(_some(chance)),
        "server frozen": lambda chance: _meanwhile(
            lambda: server.send_signal(signal.SIGSTOP),
            lambda: server.send_signal(signal.SIGCONT),
            chance,
        ),
        "server killed": lambda _: _kill_and_start(server),
    }
    if isinstance(server, PostgresServer):
        del found["server frozen"]  # its first process does no work of its own
        found["backends ended"] = lambda _: _end_backends(site.own_url)
        found["backend killed"] = lambda _: _kill_backend(site.own_url)
        found["server stopped at once"] = lambda _: _stop_and_start(server)
    else:
        found["scripts forgotten"] = lambda _: _redis(site.own_url, "script_flush")
        found["clients ended"] = lambda _: _redis(
            site.own_url, "client_kill_filter", _type="normal"
        )
    return found


def _meanwhile(begin: Callable[[], None], end: Callable[[], None], chance: random.Random) -> None:
    begin()
    time.sleep(chance.uniform(0.1, AWAY_S))
    end()


def _some(chance: random.Random) -> Callable[[bytes], bool]:
    return lambda _: chance.random() < 0.3


def _kill_and_start(server: PostgresServer | RedisServer | None) -> None:
    assert server is not None
    server.kill()
    server.start()


def _stop_and_start(server: PostgresServer) -> None:
    # PostgreSQL's immediate shutdown: it writes nothing more, and recovers at the next start.
    server.stop(signal.SIGQUIT)
    server.start()


_OTHERS = (
    "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend'"
)


def _end_backends(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"SELECT pg_terminate_backend(pid) {_OTHERS}".encode())


def _kill_backend(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        found = admin.execute(f"SELECT pid {_OTHERS} ORDER BY random() LIMIT 1".encode()).fetchone()
        if found is None:
            return
        # The server then terminates all other backends, and recovers as after a crash. Only the end
        # of this connection shows that it has noticed; until then it still takes new ones.
        os.kill(found[0], signal.SIGKILL)
        _wait_until(lambda: not _works(lambda: admin.execute("SELECT 1")))
    _wait_until(lambda: _works(lambda: psycopg.connect(url, connect_timeout=2).close()))


def _wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + GOES_ON_S
    while time.monotonic() < end and not holds():
        time.sleep(0.02)


def _works(call: Callable[[], object]) -> bool:
    try:
        call()
    except psycopg.OperationalError:
        return False
    return True


def _redis(url: str, command: str, **words: Any) -> None:
    client: Any = partial(Redis.from_url, url.partition("?")[0])()
    with client:
        getattr(client, command)(**words)
