"""Runs the processes of a session until they exit or the session must end.

The session must end at its timeout, at the end of its lease, on a stop message, and when its owner
is gone. This file waits for all of these at once, and writes the output to the run log.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from run_log import LONGEST_LINE, Log

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class SessionEnded(Exception):
    """The session must end now.

    Attributes:
        grace_s: seconds between SIGTERM and SIGKILL; 0 for SIGKILL at once.
    """

    def __init__(self, reason: str, grace_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.grace_s = grace_s


class SessionProcesses:
    """The processes of a session, one after another.

    Args:
        lease_until: on the clock of `time.monotonic`, as is `timeout_at`.
        grace_s: default time between SIGTERM and SIGKILL.
    """

    def __init__(self, log: Log, *, lease_until: float, timeout_at: float, grace_s: float) -> None:
        self._log = log
        self._lease_until = lease_until
        self._timeout_at = timeout_at
        self._grace_s = grace_s
        self._unread = b""
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Only a stop message or the end of the input ends the session.
            signal.signal(number, signal.SIG_IGN)
        os.set_blocking(0, False)

    def run(
        self,
        argv: list[str],
        env: dict[str, str],
        folder: str,
        *,
        report_pid: bool = False,
        into: bytearray | None = None,
    ) -> int:
        """Run one process in its own group until it exits.

        Args:
            report_pid: whether to report the process id to the owner.
            into: receives the output instead of the log.

        Returns:
            Its exit status; below zero for the signal that ended it.

        Raises:
            SessionEnded: the session must end; all its processes are gone.
            OSError: the process cannot be started.
        """
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            child = subprocess.Popen(  # noqa: S603  (the command is git or the entry's)
                argv,
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                cwd=folder,
                env=env,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  (this process has one thread)
            )
        finally:
            os.close(write)
        if report_pid:
            send_event({"event": "started", "pid": child.pid})
        os.set_blocking(read, False)
        output: int | None = read
        try:
            while child.poll() is None:
                if not self.wait(output, 60.0, into):
                    output = None
                reap_others(child.pid)
            # Do not wait for the end of the output: a grandchild may keep the pipe open.
            self._read_output(read, into)
        except SessionEnded as ending:
            self._stop(child, read, ending.grace_s)
            raise
        finally:
            os.close(read)
            self._log.flush()
        return child.returncode

    def _stop(self, child: subprocess.Popen[bytes], read: int, grace_s: float) -> None:
        """Send SIGTERM, wait for the grace period, and kill every process of the session."""
        if grace_s > 0:
            grace_at = time.monotonic() + grace_s
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGTERM)
            while child.poll() is None and time.monotonic() < grace_at:
                try:
                    self.wait(None, min(grace_at - time.monotonic(), 0.1), ending=True)
                except SessionEnded:
                    break
                self._read_output(read)
        kill_all()
        self._read_output(read)

    def wait(
        self,
        output: int | None,
        seconds: float,
        into: bytearray | None = None,
        *,
        ending: bool = False,
    ) -> bool:
        """Wait for the next event (output, message, exit of a child, deadline), and handle it.

        Args:
            seconds: maximum wait.
            into: receives the output instead of the log.
            ending: whether the session is ending already, so that its timeout and stop messages
                no longer matter.

        Returns:
            False once all writers of the output have closed it.

        Raises:
            SessionEnded: the lease has ended, or the owner is gone; unless `ending`, also on the
                timeout or a stop message.
        """
        now = time.monotonic()
        wake_at = min(now + seconds, self._lease_until)
        if not ending:
            wake_at = min(wake_at, self._timeout_at)
        watched = [0, self._wake] if output is None else [0, self._wake, output]
        ready = select.select(watched, [], [], max(wake_at - now, 0))[0]
        if self._wake in ready:
            os.read(self._wake, 4096)
        more = output is None or output not in ready or self._read_output(output, into)
        if 0 in ready:
            self._read_messages(ending=ending)
        now = time.monotonic()
        if now >= self._lease_until:
            raise SessionEnded(reason="lease")
        if not ending and now >= self._timeout_at:
            raise SessionEnded(reason="timeout", grace_s=self._grace_s)
        return more

    def _read_output(self, output: int, into: bytearray | None = None) -> bool:
        """Read the available output.

        Returns:
            Whether there may be more later.
        """
        for _ in range(64):
            try:
                data = os.read(output, 65_536)
            except BlockingIOError:
                return True
            if not data:
                return False
            if into is None:
                self._log.feed(data)
            elif len(into) < LONGEST_LINE:
                into += data
        return True

    def _read_messages(self, *, ending: bool) -> None:
        """Read and apply the messages on standard input.

        Raises:
            SessionEnded: the owner is gone; unless `ending`, also on a stop message.
        """
        data = os.read(0, 65_536)
        if not data:
            raise SessionEnded(reason="gone")
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "until" in message:
                self._lease_until = float(message["until"])
            elif not ending:
                raise SessionEnded(str(message["stop"]), float(message.get("grace", self._grace_s)))


def die_with_parent() -> None:
    """Reset signals, and have the kernel kill this process when the supervisor exits."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def prctl(option: int, value: int) -> None:
    """Make this system call on Linux; do nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _ignore_signal(*_: object) -> None:
    """Do nothing: the signal only needs to interrupt a wait."""


def kill_all() -> None:
    """Kill and reap all descendants of this process, including those that have left its group.

    The children of a killed process become children of this subreaper, so this repeats until there
    are none.
    """
    while True:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            # Wait for one only: a killed process may have started others just before.
            os.waitpid(-1, 0)
            reap_others(0)
        except ChildProcessError:
            return


def reap_others(child: int) -> None:
    """Reap dead children of this process, up to one that another caller waits for.

    These are descendants whose parents have exited. Until they are reaped they count as processes.

    Raises:
        ChildProcessError: there are no more children.
    """
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while (dead := os.waitid(os.P_ALL, 0, flags)) and dead.si_pid != child:
        os.waitpid(dead.si_pid, 0)


def descendants(root: int) -> list[int]:
    """Return the descendants of a process, parents before their children."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in {b"Z", b"X"}:
            parents.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    ahead = list(parents.get(root, []))
    while ahead:
        pid = ahead.pop()
        found.append(pid)
        ahead += parents.get(pid, [])
    return found


def send_event(event: dict[str, Any]) -> None:
    """Write an event to the owner; if it is gone, drop the event."""
    with suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")
