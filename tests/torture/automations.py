"""Sessions on real repositories while services are killed and stopped, and the file is edited.

Two services share one store. They are judged by what the sessions themselves write and by the
processes that exist, not by anything that Headway reports.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.servers.process import free_port
from tests.torture.checker import Violation
from tests.torture.site import Site

ENTRIES, REPOSITORIES, LIMIT, LEASE_S = 30, 10, 4, 6.0
SLACK_S = 20.0
"""Allowance for actions that take no time on an idle machine."""
PATIENCE_S = 120.0
EDIT_S = 15.0
"""For a slower edit, the services' output meanwhile is shown."""
KINDS = ("plain", "plain", "plain", "failing", "leaving", "stubborn")
SETTINGS = """store = "{store}"
log_level = "error"

[automations]
state_dir = "state"
lease = "{lease:.0f}s"
"""
SESSION = Path(__file__).with_name("automations_session.py")


@dataclass(kw_only=True)
class Seen:
    """Observations from outside.

    Attributes:
        checks: number of looks at the processes.
        most: most sessions seen at once.
        events: actions of the rig, by name.
        lines: measurements to print.
        found: violations.
        lonely: since when a lock has been listed without a live process, by session.
    """

    checks: int = 0
    most: int = 0
    events: Counter[str] = field(default_factory=Counter[str])
    lines: list[str] = field(default_factory=list[str])
    found: list[Violation] = field(default_factory=list[Violation])
    lonely: dict[str, float] = field(default_factory=dict[str, float])


class Rig:
    """The folder, the file and the services."""

    def __init__(self, folder: Path, site: Site, draw: random.Random) -> None:
        self.folder = folder
        self.seen = Seen()
        self.is_embedded = site.url.startswith("sqlite")
        self.ports = [free_port(), free_port()]
        self.services: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "headway.toml").write_text(SETTINGS.format(store=site.url, lease=LEASE_S))
        for number in range(REPOSITORIES):
            _new_repository(folder / f"repository-{number}.git.d")
        self.kinds = [KINDS[number % len(KINDS)] for number in range(ENTRIES)]
        self.schedules = [self._schedule(number, draw) for number in range(ENTRIES)]
        self.extra: list[str] = []
        self.write()

    def _schedule(self, number: int, draw: random.Random) -> str:
        if number % 10 == 8:
            return "* * * * *"
        if number % 10 == 9:
            at = time.gmtime(time.time() + 60 * draw.randint(1, 4))
            return f"at {at.tm_hour:02}:{at.tm_min:02}"
        return f"{draw.randint(5, 20)}s"

    def entry(self, name: str, number: int, kind: str, schedule: str) -> str:
        repository = number % REPOSITORIES
        words = [sys.executable, "-I", str(SESSION), str(self.folder), name, str(repository)]
        lines = {
            "id": name,
            "repository": f"repository-{repository}.git.d",
            "schedule": schedule,
            "command": [*words, str(LIMIT), kind],
            "timeout": "4s" if kind == "stubborn" else "60s",
            "grace": "500ms",
        }
        written = [f"{key} = {json.dumps(value)}" for key, value in lines.items()]
        return "\n".join(["[[automation]]", *written, ""])

    def write(self) -> str:
        """Rewrite the file, as editors do; return its text."""
        entries = [
            self.entry(f"e{number}", number, self.kinds[number], self.schedules[number])
            for number in range(ENTRIES)
        ]
        text = "\n".join([f"[dispatcher]\nmax_concurrent = {LIMIT}\n", *entries, *self.extra])
        new = self.folder / "automations.new"
        new.write_text(text)
        new.rename(self.folder / "automations.toml")
        return text

    # ------------------------------------------------------------------------------- services

    def start(self, which: int) -> None:
        line = ["serve", f"--port={self.ports[which]}", "--system=automations", "--grace=1s"]
        with (self.folder / f"service-{which}.log").open("ab") as log:
            self.services[which] = subprocess.Popen(
                [sys.executable, "-m", "headway", *line],
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self.until(lambda: self.ask(which, "/dispatcher/health") is not None, "a service answers")

    def ask(self, which: int, path: str = "") -> Any:
        url = f"http://127.0.0.1:{self.ports[which]}/api/automations{path}"
        try:
            return httpx.get(url, timeout=5).json()
        except (httpx.HTTPError, ValueError):
            return None

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> float:
        """Keep looking until a condition holds; return after how many seconds it did."""
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin > seconds:
                self.seen.found.append(Violation("never", f"{what}, in {seconds:.0f} s"))
                break
            self.check()
            time.sleep(0.05)
        return time.monotonic() - begin

    # -------------------------------------------------------------------------------- judging

    def sessions(self) -> dict[str, set[str]]:
        """Return the sessions of this folder with a live process: their repositories, by id."""
        found: dict[str, set[str]] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                pairs = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            given = dict(one.partition("=")[::2] for one in pairs)
            mine = str(self.folder) in " ".join([*words, given.get("HEADWAY_REPOSITORY", "")])
            if state not in {b"Z", b"X"} and "HEADWAY_SESSION_ID" in given and mine:
                one = found.setdefault(given["HEADWAY_SESSION_ID"], set())
                one |= {given["HEADWAY_REPOSITORY"]} if "HEADWAY_REPOSITORY" in given else set()
        return found

    def check(self, which: int | None = None) -> None:
        """Check the processes against the guarantees."""
        seen, sessions = self.seen, self.sessions()
        seen.checks += 1
        seen.most = max(seen.most, len(sessions))
        if len(sessions) > LIMIT:
            seen.found.append(Violation("limit", f"{sorted(sessions)}"))
        users: dict[str, list[str]] = {}
        for session, repositories in sessions.items():
            for repository in repositories:
                users.setdefault(repository, []).append(session)
        for repository, those in users.items():
            if len(those) > 1:
                seen.found.append(Violation("two in one repository", f"{repository}: {those}"))
        if which is None:
            return
        told = self.ask(which, "/locks") or {"locks": []}
        now, held = time.monotonic(), {one["session_id"] for one in told["locks"]}
        seen.lonely = {one: seen.lonely.get(one, now) for one in held if one not in self.sessions()}
        for one, since in seen.lonely.items():
            if now - since > LEASE_S + SLACK_S:
                where = f"{one}: no process for {now - since:.0f} s"
                seen.found.append(Violation("lock beyond its lease", where))

    def records(self) -> list[dict[str, Any]]:
        path = self.folder / "seen.jsonl"
        return [json.loads(one) for one in path.read_text().splitlines()] if path.exists() else []

    # --------------------------------------------------------------------------------- events

    def watch(self, seconds: float) -> None:
        """Keep looking for this long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check(0 if self.seen.checks % 10 == 0 else None)
            time.sleep(0.1)

    def kill(self, which: int) -> None:
        """Kill a service that has sessions; all of them must be gone shortly afterwards."""
        service = self.services[which]
        those = self.busy(service)
        service.send_signal(signal.SIGKILL)
        service.wait()
        took = self.until(lambda: not those & _with_session(), "orphans gone", LEASE_S + SLACK_S)
        self.seen.events["killed"] += 1
        self.seen.lines.append(
            f"killed -9: {len(those)} processes of sessions gone in {took:.1f} s"
        )
        self.start(which)

    def busy(self, service: subprocess.Popen[bytes]) -> set[int]:
        """Wait until a service has a session; return the processes of its sessions."""
        those: set[int] = set()

        def has_one() -> bool:
            those.update(_descendants(service.pid) & _with_session())
            return bool(those)

        self.until(has_one, "a session of the service")
        return those

    def stop(self, which: int) -> None:
        """Stop a service for longer than its lease; its sessions must be gone before it expires."""
        service = self.services[which]
        those = self.busy(service)
        service.send_signal(signal.SIGSTOP)
        took = self.until(lambda: not those & _with_session(), "sessions gone", LEASE_S)
        self.seen.lines.append(f"stopped: {len(those)} processes of sessions gone in {took:.1f} s")
        self.watch(2 * LEASE_S - min(took, LEASE_S))
        if which and not self.is_embedded:
            # Whatever the stopped service holds, the other one applies an edit. On SQLite it may
            # have to wait until the first one continues.
            self.edit()
        service.send_signal(signal.SIGCONT)
        self.seen.events["stopped"] += 1

    def edit(self) -> None:
        """Edit an entry, and check that the edit is applied."""
        number = self.seen.events["edited"] % 8
        new = f"{30 + self.seen.events['edited']}s"
        self.schedules[number] = new
        self.write()

        def applied() -> bool:
            rows = (self.ask(0) or {}).get("automations", [])
            return any(one["id"] == f"e{number}" and new in one["schedule"] for one in rows)

        took = self.until(applied, "an edit holds")
        if took > EDIT_S:
            waits = (self.folder / "state" / "logs" / "dispatcher.log").read_text().splitlines()
            said = [one for one in waits if "edits not applied" in one or "file applied" in one]
            self.seen.lines += said[-6:]
        self.seen.events["edited"] += 1
        self.seen.lines.append(f"an edit held after {took:.1f} s")

    def spoil(self) -> None:
        """Add an invalid entry; it must be reported with its line, and all others kept."""
        self.extra = [self.entry("wrong", 0, "plain", "moonrise")]
        lines = self.write().splitlines()
        line = next(n for n, text in enumerate(lines, 1) if "moonrise" in text)

        def reported() -> bool:
            notices = (self.ask(0, "/notices") or {}).get("notices", [])
            return any(f"automations.toml:{line}: schedule" in one["text"] for one in notices)

        took = self.until(reported, "an invalid entry is reported with file and line")
        rows = (self.ask(0) or {}).get("automations", [])
        enabled = sum(one["enabled"] for one in rows)
        if len(rows) != ENTRIES or enabled != ENTRIES:
            where = f"{len(rows)} entries, {enabled} enabled, of {ENTRIES}"
            self.seen.found.append(Violation("an invalid entry disables others", where))
        self.seen.events["spoiled"] += 1
        self.seen.lines.append(f"an invalid entry was reported with its line after {took:.1f} s")

    def close(self) -> None:
        """Stop everything; no process may be left."""
        for service in self.services.values():
            service.send_signal(signal.SIGCONT)
            service.send_signal(signal.SIGTERM)
        for service in self.services.values():
            try:
                service.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.seen.found.append(Violation("never", "a service ends at SIGTERM"))
                service.kill()
                service.wait()
        took = self.until(lambda: not self.sessions(), "no orphan", SLACK_S)
        self.seen.lines.append(f"after the services: no process of a session, in {took:.1f} s")


def run_and_kill(
    folder: Path, site: Site, seed: int, seconds: float, say: Callable[[str], None]
) -> tuple[list[str], list[Violation]]:
    """Run sessions for this long, while services are killed and stopped.

    Returns:
        Lines to print, and violations.
    """
    draw = random.Random(f"automations {seed}")
    subprocess.run(
        [sys.executable, "-m", "headway", "migrate", f"--store={site.url}"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    rig = Rig(folder, site, draw)
    until = time.monotonic() + seconds
    try:
        rig.start(0)
        rig.start(1)
        rig.watch(min(5.0, seconds / 6))
        rig.spoil()
        while True:
            rig.edit()
            rig.kill(draw.randint(0, 1))
            rig.watch(draw.uniform(0, 5))
            rig.stop(draw.randint(0, 1))
            say(f"{len(rig.records())} lines of sessions, {rig.seen.checks} looks")
            if time.monotonic() > until:
                break
            rig.watch(draw.uniform(5, 20))
    finally:
        rig.close()
    return _judged(rig, seconds)


def _judged(rig: Rig, seconds: float) -> tuple[list[str], list[Violation]]:
    seen, records = rig.seen, rig.records()
    for one in records:
        if one["event"] not in {"begin", "end"}:
            seen.found.append(Violation(one["event"], f"{one['session']}, pid {one['pid']}"))
    begun = Counter(one["entry"] for one in records if one["event"] == "begin")
    timed = [n for n in range(ENTRIES) if n % 10 < 8]
    idle = [f"e{n}" for n in timed if not begun[f"e{n}"]]
    if idle and seconds >= 120:
        seen.found.append(Violation("never ran", ", ".join(idle)))
    if not begun:
        seen.found.append(Violation("never ran", "any"))
    ended = sum(one["event"] == "end" for one in records)
    events = ", ".join(f"{count} {name}" for name, count in sorted(seen.events.items()))
    return [
        f"{sum(begun.values())} sessions of {len(begun)} entries, {ended} to their own end; "
        f"at most {seen.most} at once of {LIMIT}",
        f"{events}; {seen.checks} looks at all processes",
        *seen.lines[-12:],
    ], seen.found


def _new_repository(folder: Path) -> None:
    folder.mkdir()
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for line in (["init", "-q", "-b", "main"], [*who, "commit", "-q", "--allow-empty", "-m", "1"]):
        subprocess.run(["git", *line], cwd=folder, check=True, env=os.environ)


def _with_session() -> set[int]:
    """Return the processes marked as part of a session."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            marked = b"HEADWAY_SESSION_ID=" in entry.read_bytes()
            state = (entry.parent / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if marked and state not in {b"Z", b"X"}:
            found.add(int(entry.parent.name))
    return found


def _descendants(root: int) -> set[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found: set[int] = set()
    ahead = [root]
    while ahead:
        for pid in parents.get(ahead.pop(), []):
            found.add(pid)
            ahead.append(pid)
    return found
