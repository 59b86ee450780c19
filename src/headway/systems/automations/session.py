"""The owner's side of a session: starts the supervisor, renews the lease, receives the end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from headway.runtime.timing import Timing
from headway.systems.automations.config import HOUR_MS, Automation
from headway.systems.automations.folders import Folders
from headway.systems.automations.supervisor.files import flock, remove

SUPERVISOR = Path(__file__).with_name("supervisor")
PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Variables passed to every session; it gets nothing else of the service's environment."""
GIT_PASSED = ("SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Additional variables for git while the repository is prepared."""
ENDING_S = 3.0
"""Time between a session's SIGTERM and SIGKILL when the service stops."""
LOGS_KEPT = 100
"""Run logs kept per automation."""
END_REPORT_S = 1.0
"""Time for a supervisor to report the end of a session that lost its lease."""
MARK = "HEADWAY_SESSION_ID"
KILL_PASSES = 100
"""Most searches for processes that others started just before they were killed."""
ASIDE_KEPT = 10
"""Broken mirrors, broken worktrees and worktrees of failed sessions kept, the newest of each."""
MIRROR_KEPT_S = 90 * 86_400
"""How long after its last fetch a mirror is kept; it is recreated for the next session."""
ABANDONED_S = 3600
"""Age at which a worktree without a supervisor's lock counts as left by a killed one."""
PERMANENT = re.compile(
    r"does not appear to be a git repository|repository '.*' not found|repository not found"
    r"|authentication failed|could not read (?:username|password)|permission denied"
    r"|host key verification failed|invalid reference: |pathspec '.*' did not match",
    re.IGNORECASE,
)
"""Git's errors for a missing repository, ref or permission."""

Renew = Callable[[Mapping[str, object]], Awaitable[float | None]]
"""Renews the lease, given the facts of the session. Returns the end of the lease, on the clock of
`Timing.monotonic`, or None if the session has lost it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """How a session ended.

    Attributes:
        reason: `exit`, `timeout`, `lease`, `gone`, `setup`, `cancelled`, `stopped`, `lost`, or
            `killed` if the supervisor was killed.
        status: exit status of the command, if it exited by itself.
        step: last step that was started.
        error: if setup failed, the error of git or of the operating system.
        bytes: size of the output.
        truncated: whether part of the output is missing from the log.
    """

    reason: str
    status: int | None = None
    signal: int | None = None
    step: str = ""
    error: str = ""
    bytes: int = 0
    truncated: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the command exited by itself with status 0."""
        return self.reason == "exit" and self.status == 0

    @property
    def permanent(self) -> bool:
        """Whether it would fail again until the entry, or what it refers to, is changed."""
        return self.reason == "setup" and PERMANENT.search(self.error) is not None

    def __str__(self) -> str:
        """Return a short description."""
        if self.reason == "setup":
            text = f"setup failed at {self.step}" + (f" ({self.status})" if self.status else "")
            return f"{text}: {self.error}" if self.error else text
        if self.reason != "exit":
            return self.reason
        return f"signal {self.signal}" if self.signal else f"status {self.status}"


@dataclass(kw_only=True, slots=True)
class AutomationSession:
    """One run of an automation.

    Attributes:
        id: `cron:`, the automation's id, `:` and the job's id.
        pid: process id of the command; None until it runs.
        remade: what was broken and was recreated: `mirror` or `worktree`.
    """

    id: str
    automation: Automation
    run: int
    lock_timeout_ms: int = 4 * HOUR_MS
    pid: int | None = None
    remade: list[str] = field(default_factory=list[str])
    _ending: str | None = None
    _process: asyncio.subprocess.Process | None = None

    @property
    def facts(self) -> dict[str, object]:
        """What is published about the session while it runs."""
        return {"session_id": self.id, "pid": self.pid, "hostname": socket.gethostname()}

    async def run_to_end(
        self, folders: Folders, timing: Timing, until: float, renew: Renew, every_s: float
    ) -> End:
        """Run the session until all its processes are gone.

        Args:
            until: end of the first lease, on the clock of `Timing.monotonic`.
            renew: called at once, every `every_s` seconds, and when the process id is known.

        Raises:
            OSError: the supervisor cannot be started.
        """
        spec = self._spec(folders, until)
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(SUPERVISOR),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(()),
            start_new_session=True,
        )
        self._send(spec)
        renewing = asyncio.ensure_future(self._renew(timing, renew, every_s))
        try:
            return await self._follow(process)
        finally:
            renewing.cancel()
            # If this ends early: without its owner, the supervisor kills all processes at once.
            if process.stdin is not None:
                process.stdin.close()
            while process.returncode is None:
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(process.wait())

    async def prune(self, folders: Folders) -> None:
        """Remove what need not be kept any longer; call it after the end has been reported.

        It may take longer than a lease, or than a stopping worker waits.
        """
        await asyncio.to_thread(_prune, self, folders)

    def end(self, reason: str, *, grace_s: float | None = None) -> None:
        """Request the end of the session: SIGTERM, then SIGKILL.

        Args:
            grace_s: seconds between the two; None for those of the entry.
        """
        if self._ending is None:
            self._ending = reason
            self._send({"stop": reason} | ({} if grace_s is None else {"grace": grace_s}))

    def _send(self, words: Mapping[str, object]) -> None:
        stdin = None if self._process is None else self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(json.dumps(words).encode() + b"\n")

    async def _renew(self, timing: Timing, renew: Renew, every_s: float) -> None:
        while True:
            until = await renew(self.facts)
            reported_pid = self.pid
            if until is None:
                # Another session may already have the repository, so this one gets no grace period.
                self.end("lost", grace_s=0)
                await timing.pause(END_REPORT_S)
                if self._process is not None and self._process.returncode is None:
                    self._process.kill()
                return
            self._send({"until": until})
            # In short pauses, so that the process id is published soon after it is known.
            for _ in range(20):
                await timing.pause(every_s / 20)
                if self.pid != reported_pid:
                    break

    async def _follow(self, process: asyncio.subprocess.Process) -> End:
        assert process.stdout is not None  # noqa: S101  (it is a pipe)
        while True:
            try:
                line = await process.stdout.readline()
            except asyncio.CancelledError:
                if self._ending is not None:
                    raise
                self.end("stopped", grace_s=ENDING_S)
                continue
            if not line:
                break
            event = json.loads(line)
            if event["event"] == "started":
                self.pid = event["pid"]
            elif event["event"] == "remade":
                self.remade.append(event["what"])
            else:
                known = {name: event[name] for name in End.__slots__}
                return End(**known)
        kill_marked(self.id, self.pid)
        return End(reason="killed")

    def _spec(self, folders: Folders, until: float) -> dict[str, Any]:
        one, table = self.automation, self.automation.table
        work = folders.work / f"{self.id.rpartition(':')[2]}-{self.run}"
        artifacts = folders.artifacts / one.id / work.name
        given = _environment(table.pass_env) | table.env
        given |= {
            MARK: self.id,
            "HEADWAY_AUTOMATION_ID": one.id,
            "HEADWAY_REPOSITORY": one.repository.key,
        }
        return {
            "log": str(folders.log(self.id)),
            "max_output": table.max_output,
            "secrets": one.repository.secrets,
            "until": until,
            "timeout_s": min(table.timeout, self.lock_timeout_ms) / 1000,
            "grace_s": table.grace / 1000,
            "mirror": str(folders.mirrors / f"{_folder_name(one.repository.key)}.git"),
            "work": str(work),
            "url": one.repository.url,
            "ref": table.ref,
            "command": table.command,
            "env": given,
            "git_env": _environment((*GIT_PASSED, *table.pass_env))
            | {MARK: self.id, "LC_ALL": "C"},
            "artifacts": table.artifacts,
            "artifacts_to": str(artifacts),
            "keep_worktree": table.keep_worktree,
        }


def session_id(automation_id: str, job_id: str) -> str:
    """Return the id of the session of a job."""
    return f"cron:{automation_id}:{job_id}"


def kill_marked(session: str, group: int | None) -> None:
    """Kill the processes of a session whose supervisor is gone: its group, and any that left it."""
    if group is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    mark, killed = f"{MARK}={session}".encode(), set[Path]()
    for _ in range(KILL_PASSES):
        found = {one for one in Path("/proc").glob("[0-9]*/environ") if _contains(one, mark)}
        if found <= killed:
            return
        for one in found - killed:
            with suppress(OSError):
                os.kill(int(one.parent.name), signal.SIGKILL)
        killed |= found


def _contains(environ: Path, mark: bytes) -> bool:
    with suppress(OSError):
        return mark in environ.read_bytes().split(b"\0")
    return False


def _environment(more: tuple[str, ...]) -> dict[str, str]:
    return {name: os.environ[name] for name in (*PASSED, *more) if name in os.environ}


def _folder_name(key: str) -> str:
    name = "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in key[-60:])
    return f"{name.strip('-.')}-{sha256(key.encode()).hexdigest()[:12]}"


def _prune(session: AutomationSession, folders: Folders) -> None:
    """Delete old artefacts and logs of this automation, and broken, abandoned or unused folders."""
    with suppress(OSError):
        _delete_old_logs(session, folders)
        # The run log has just been written, so its time is now.
        now_s = folders.log(session.id).stat().st_mtime
        for mirror in folders.mirrors.glob("*.git"):
            _set_aside_if_unused(mirror, now_s)
        for folder in list(_old_folders(session, folders, now_s)):
            remove(str(folder))


def _delete_old_logs(session: AutomationSession, folders: Folders) -> None:
    # The name of a log ends with the id of its job, which has 36 characters.
    begin = folders.log(session.id).stem[:-36]
    logs = [one for one in folders.logs.glob(f"{begin}*.log") if len(one.stem) == len(begin) + 36]
    for old in _newest_first(logs)[LOGS_KEPT:]:
        old.unlink()


def _old_folders(session: AutomationSession, folders: Folders, now_s: float) -> Iterator[Path]:
    table = session.automation.table
    artifacts = folders.artifacts / table.id
    yield from _newest_first(artifacts.iterdir() if artifacts.exists() else ())[
        table.keep_artifacts :
    ]
    for pattern in ("mirrors/*.broken-*", "work/*.broken-*", "work/*.kept"):
        yield from _newest_first(folders.root.glob(pattern))[ASIDE_KEPT:]
    yield from (one for one in folders.work.iterdir() if _is_abandoned(one, now_s))
    yield from folders.mirrors.glob("*.unused")


def _is_abandoned(work: Path, now_s: float) -> bool:
    if work.suffix or now_s - work.stat().st_mtime < ABANDONED_S:
        return False
    # Its session may have made it unreadable.
    work.chmod(0o700)
    folder = os.open(work, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return flock(folder)
    finally:
        os.close(folder)


def _set_aside_if_unused(mirror: Path, now_s: float) -> None:
    """Rename a mirror without recent fetches, so that it is never found half deleted.

    Its entry may have been removed, or be in the file of another server that shares the folder.
    """
    with Path(f"{mirror}.lock").open("ab") as lock:
        fetched = mirror / "FETCH_HEAD"
        used = fetched if fetched.exists() else mirror
        # Supervisors hold the lock while they fetch and clone. Later their worktrees need the
        # mirror, too, but no session lasts nearly that long.
        if flock(lock.fileno()) and now_s - used.stat().st_mtime > MIRROR_KEPT_S:
            mirror.rename(f"{mirror}.unused")


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda one: one.stat().st_mtime, reverse=True)
