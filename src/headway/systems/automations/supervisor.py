"""The supervisor of one session: a separate process that needs only the standard library.

It prepares the repository, runs the command in its own process group, captures the output, and
kills every process of the session at the timeout, on a stop request, when the lease ends, or when
its owner, the process that started it, is gone. It is the subreaper of its descendants, so that a
child which leaves the group is found, too.

Standard input is one JSON line with the specification (`Session._spec`), then one line each:
`{"until": seconds}` moves the end of the lease, on the clock of `time.monotonic`;
`{"stop": reason, "grace": seconds}` ends the session, by default with the grace period of the
specification. The end of the input means that the owner is gone.

Standard output is one JSON line each: `{"event": "started", "pid"}`,
`{"event": "remade", "what", "kept"}`, and at the end
`{"event": "ended", "reason", "status", "signal", "step", "error", "bytes", "truncated"}`. The
reasons are `exit`, `timeout`, `lease`, `gone` (the owner), `setup`, and those of `stop`.
"""

from __future__ import annotations

import ctypes
import fcntl
import fnmatch
import glob
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from io import FileIO
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LONGEST_LINE = 64_000
LONGEST_SECRET = 4_000
LONGEST_ERROR = 500
SETUP_REASON = "setup"
# Begins at `://`: a pattern that begins with the scheme is quadratic in a long word.
_IN_URL = re.compile(rb"(?<=[A-Za-z0-9+.-]://)[^\s/'\"<>]*@")


class Ended(Exception):
    """The session must end now.

    Attributes:
        grace_s: seconds between SIGTERM and SIGKILL; 0 for SIGKILL at once.
    """

    def __init__(self, reason: str, grace_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.grace_s = grace_s


def _end(reason: str, grace_s: float = 0.0) -> NoReturn:
    raise Ended(reason, grace_s)


class Log:
    """The run log: limited in size, readable by its owner only, without the secrets of the URL."""

    def __init__(self, path: str, most: int, secrets: list[str]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        self._secrets = [one.encode() for one in secrets]
        self._left = most
        self._partial = b""
        self.last = b""
        self.bytes = 0
        self.truncated = False

    def feed(self, data: bytes) -> None:
        """Write complete lines and buffer the rest, so that no secret is split."""
        self.bytes += len(data)
        if self.truncated:
            return
        self._partial += data
        end = self._partial.rfind(b"\n") + 1
        if not end and len(self._partial) >= LONGEST_LINE:
            # Keep what may be the beginning of a secret.
            self._partial = self._clean(self._partial)
            end = max(len(self._partial) - LONGEST_SECRET, 0)
        self._write(self._partial[:end])
        self._partial = self._partial[end:]

    def flush(self) -> None:
        """Write the buffered rest."""
        self._write(self._partial)
        self._partial = b""

    def note(self, text: str) -> None:
        """Write a line of the supervisor itself, regardless of the size limit."""
        self.flush()
        self._append(self._clean(f"headway: {text}\n".encode(errors="replace")))

    def _write(self, data: bytes) -> None:
        if not data or self.truncated:
            return
        data = self._clean(data)
        self.last = (self.last + data)[-LONGEST_ERROR:]
        self._append(data[: self._left])
        self._left -= len(data)
        if self._left < 0:
            self.truncated = True
            self._partial = b""
            self._append(b"\nheadway: the output is too long; the rest is omitted\n")

    def _append(self, data: bytes) -> None:
        try:
            os.write(self._file, data)
        except OSError:
            # The device is full: the session goes on, and its end is still reported.
            self.truncated = True

    def _clean(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, b"***")
        return _IN_URL.sub(b"***@", data)


class Supervisor:
    """Runs the steps of one session, one after another."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.log = Log(spec["log"], spec["max_output"], spec["secrets"])
        self.lease_until = float(spec["until"])
        self.timeout_at = time.monotonic() + spec["timeout_s"]
        self.step = ""
        self._unread = b""
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Only a stop message or the end of the input ends the session.
            signal.signal(number, signal.SIG_IGN)
        os.set_blocking(0, False)

    # ------------------------------------------------------------------------------- the steps

    def run(self) -> dict[str, Any]:
        """Prepare the repository, and run the command.

        Returns:
            The event `ended`.
        """
        status: int | None = None
        error = ""
        try:
            try:
                status = self._run_steps()
                reason = "exit" if self.step == "command" or not status else SETUP_REASON
            finally:
                # Processes that the command left running end with the session.
                kill_all()
        except Ended as ending:
            reason = ending.reason
        except OSError as failure:
            error = f"{failure.filename or ''}: {failure.strerror}"
            if failure.filename == "git":
                error = "git is not installed, or not in the PATH of the service"
            self.log.note(f"{self.step}: {error}")
            reason = SETUP_REASON
        if reason == SETUP_REASON and not error:
            error = "; ".join(filter(None, self.log.last.decode(errors="replace").split("\n")))
        self._keep(failed=reason != "exit" or bool(status))
        self.log.note(f"ended: {reason}" + ("" if status is None else f", status {status}"))
        return {
            "event": "ended",
            "reason": reason,
            "status": status if status is not None and status >= 0 else None,
            "signal": -status if status is not None and status < 0 else None,
            "step": self.step,
            "error": error,
            "bytes": self.log.bytes,
            "truncated": self.log.truncated,
        }

    def _run_steps(self) -> int:
        spec = self.spec
        if os.path.lexists(spec["work"]):
            # Left by the same run before the store was restored, or by another store.
            self._set_aside("worktree", spec["work"])
        os.makedirs(spec["work"], mode=0o700)
        # Held until exit: an unlocked folder was left by a killed supervisor.
        flock(os.open(spec["work"], os.O_RDONLY | os.O_CLOEXEC))
        folder = os.path.join(spec["work"], "repository")
        lock = os.open(spec["mirror"] + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.step = "mirror lock"
        try:
            # The dispatcher runs one session per repository; the lock is for those of other stores.
            while not flock(lock):
                self._watch(None, 0.2)
            remove_git_leftovers(spec["mirror"])
            status = self._prepare(folder)
            if status:
                self._set_aside_if_broken()
                remove(folder)
                status = self._prepare(folder) if not os.path.exists(spec["mirror"]) else status
        finally:
            os.close(lock)
        if status:
            return status
        self.step = "command"
        command = spec["command"]
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        self.log.note("started")
        return self._child(argv, spec["env"], folder, started=True)

    def _prepare(self, folder: str) -> int:
        """Update the mirror, and clone from it.

        Returns:
            The exit status of the step that failed, or 0.
        """
        mirror, ref = self.spec["mirror"], self.spec["ref"]
        if not os.path.exists(mirror):
            status = self._git("init", "--quiet", "--bare", mirror)
            # Objects that a worktree still shares must not be garbage-collected.
            status = status or self._git("-C", mirror, "config", "gc.auto", "0")
            if status:
                return status
        at = ("-C", mirror)
        heads = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        status = self._git(*at, "fetch", "--quiet", "--prune", "--no-auto-gc", "origin", *heads)
        if not status and ref is None:
            found = bytearray()
            status = self._git(*at, "ls-remote", "--symref", "origin", "HEAD", into=found)
            named = re.search(rb"ref: (refs/heads/\S+)\s+HEAD", bytes(found))
            self.log.feed(bytes(found) if status else b"")
            if not status and named:
                status = self._git(*at, "symbolic-ref", "HEAD", named[1].decode())
            elif not status and found:
                # The HEAD of the repository is detached, perhaps at a commit of no branch.
                status = self._git(*at, "fetch", "--quiet", "--no-auto-gc", "origin", "HEAD")
                status = status or self._git(*at, "update-ref", "--no-deref", "HEAD", "FETCH_HEAD")
        if not status:
            # Join small packs and loose objects. This deletes no object, unlike `git gc`. If it
            # fails, or if git is older than 2.32, the mirror is only larger.
            self._git(*at, "repack", "-d", "--quiet", "--geometric=2", into=bytearray())
        status = status or self._git(
            "clone", "--quiet", "--shared", "--no-checkout", mirror, folder
        )
        if status:
            return status
        self._point_at_origin(folder)
        return self._git("-C", folder, "checkout", "--quiet", *([ref, "--"] if ref else []))

    def _git(self, *arguments: str, into: bytearray | None = None) -> int:
        self.step, self.log.last = f"git {arguments[2 if arguments[0] == '-C' else 0]}", b""
        # The URL is not an argument, which other users could see, and is not stored in the mirror.
        given = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "remote.origin.url",
            "GIT_CONFIG_VALUE_0": self.spec["url"],
            "GIT_TERMINAL_PROMPT": "0",
        }
        clone = arguments[0] == "clone"
        env = {**self.spec["git_env"], **({"GIT_TERMINAL_PROMPT": "0"} if clone else given)}
        return self._child(["git", *arguments], env, self.spec["work"], into=into)

    def _point_at_origin(self, folder: str) -> None:
        """Point the clone's remote at the repository instead of the mirror."""
        path = os.path.join(folder, ".git", "config")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        quoted = self.spec["url"].replace("\\", "\\\\").replace('"', '\\"')
        text = re.sub(r"(?m)^\turl = .*$", lambda _: f'\turl = "{quoted}"', text, count=1)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o600)

    def _set_aside_if_broken(self) -> None:
        mirror = self.spec["mirror"]
        if not os.path.exists(mirror):
            return
        step, last = self.step, self.log.last
        # Only a full check reads the contents of files, like a checkout.
        quick = [] if step == "git checkout" else ["--connectivity-only"]
        if self._git("-C", mirror, "fsck", "--no-dangling", *quick, into=bytearray()):
            self._set_aside("mirror", mirror)
        self.step, self.log.last = step, last

    def _set_aside(self, what: str, path: str) -> None:
        """Keep something broken next to its replacement, for inspection."""
        kept = f"{path}.broken-{os.getpid()}"
        os.rename(path, kept)
        self.log.note(f"the {what} was broken; it was kept at {kept} and recreated")
        say({"event": "remade", "what": what, "kept": kept})

    def _keep(self, *, failed: bool) -> None:
        """Copy the artefacts, and delete the work folder or keep it, as the entry says."""
        spec = self.spec
        folder = os.path.join(spec["work"], "repository")
        patterns: list[str] = spec["artifacts"] if self.step == "command" else []
        for pattern in patterns:
            for found in glob.glob(pattern, root_dir=folder, recursive=True):
                try:
                    _copy(folder, found, spec["artifacts_to"])
                except OSError as error:
                    self.log.note(f"artefact {found} not kept: {error.strerror}")
        if spec["keep_worktree"] == "failed" and failed:
            try:
                os.rename(spec["work"], f"{spec['work']}.kept")
            except OSError as error:
                self.log.note(f"worktree not kept: {error}")
        else:
            remove(spec["work"])

    # ---------------------------------------------------------------------------- one process

    def _child(
        self,
        argv: list[str],
        env: dict[str, str],
        folder: str,
        *,
        started: bool = False,
        into: bytearray | None = None,
    ) -> int:
        """Run one process in its own group until it exits.

        Args:
            started: whether to report the process id to the owner.
            into: receives the output instead of the log.

        Returns:
            Its exit status; below zero for the signal that ended it.

        Raises:
            Ended: the session must end; all its processes are gone.
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
        if started:
            say({"event": "started", "pid": child.pid})
        os.set_blocking(read, False)
        output: int | None = read
        try:
            while child.poll() is None:
                if not self._watch(output, 60.0, into):
                    output = None
            # Do not wait for the end of the output: a grandchild may keep the pipe open.
            self._pump(read, into)
        except Ended as ending:
            self._stop(child, read, ending.grace_s)
            raise
        finally:
            os.close(read)
            self.log.flush()
        return child.returncode

    def _stop(self, child: subprocess.Popen[bytes], read: int, grace_s: float) -> None:
        """Send SIGTERM, wait for the grace period, and kill every process of the session."""
        if grace_s > 0:
            grace_at = time.monotonic() + grace_s
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGTERM)
            while child.poll() is None and time.monotonic() < grace_at:
                try:
                    self._watch(None, min(grace_at - time.monotonic(), 0.1), ends=False)
                except Ended:
                    break
                self._pump(read)
        kill_all()
        self._pump(read)

    def _watch(
        self,
        output: int | None,
        seconds: float,
        into: bytearray | None = None,
        *,
        ends: bool = True,
    ) -> bool:
        """Wait for the next event (output, message, exit of a child, deadline), and handle it.

        Args:
            seconds: maximum wait.
            into: receives the output instead of the log.
            ends: whether the timeout and a stop message end the session; false while it is
                already ending.

        Returns:
            False once all writers of the output have closed it.

        Raises:
            Ended: the lease has ended, or the owner is gone; if `ends`, also on the timeout or a
                stop message.
        """
        now = time.monotonic()
        limits = [self.lease_until - now, seconds, *([self.timeout_at - now] if ends else [])]
        watched = [0, self._wake, *([] if output is None else [output])]
        ready = select.select(watched, [], [], max(min(limits), 0))[0]
        if self._wake in ready:
            os.read(self._wake, 4096)
        more = output is None or output not in ready or self._pump(output, into)
        if 0 in ready:
            self._read_messages(ends=ends)
        now = time.monotonic()
        if now >= self.lease_until:
            _end("lease")
        if ends and now >= self.timeout_at:
            _end("timeout", self.spec["grace_s"])
        return more

    def _pump(self, output: int, into: bytearray | None = None) -> bool:
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
                self.log.feed(data)
            elif len(into) < LONGEST_LINE:
                into += data
        return True

    def _read_messages(self, *, ends: bool) -> None:
        """Read and apply the messages on standard input.

        Raises:
            Ended: the owner is gone; if `ends`, also on a stop message.
        """
        data = os.read(0, 65_536)
        if not data:
            _end("gone")
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word = json.loads(line)
            if "until" in word:
                self.lease_until = float(word["until"])
            elif ends:
                _end(str(word["stop"]), float(word.get("grace", self.spec["grace_s"])))


# -------------------------------------------------------------------------- processes and files


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
            # Reap only one: a killed process may have started others just before.
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


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


def flock(lock: int) -> bool:
    """Lock an open file unless another process has locked it; return whether it is locked."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _copy(folder: str, name: str, to: str) -> None:
    """Copy one artefact, unless it is outside the folder, in `.git*`, or not a file."""
    source = os.path.realpath(os.path.join(folder, name))
    inside = os.path.relpath(source, os.path.realpath(folder))
    if inside.startswith("..") or fnmatch.fnmatch(inside, ".git*") or not os.path.isfile(source):
        return
    target = os.path.join(to, inside)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    shutil.copyfile(source, target)
    os.chmod(target, 0o600)


def remove_git_leftovers(mirror: str) -> None:
    """Delete the lock files and partial packs of a killed git from a mirror that only we use.

    Git never deletes them itself, and fails while another has locked what it changes.
    """
    for pattern in ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*", "objects/pack/.tmp-*"):
        for found in glob.glob(pattern, root_dir=mirror, recursive=True):
            with suppress(OSError):
                os.unlink(os.path.join(mirror, found))


def remove(folder: str) -> None:
    """Delete a folder, including subfolders that their owner may not write, as Go's modules."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(folder):
        with suppress(OSError):
            os.chmod(folder, 0o700)
            for parent, names, _ in os.walk(folder):
                for path in (os.path.join(parent, name) for name in names):
                    if not os.path.islink(path):
                        os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


def say(event: dict[str, Any]) -> None:
    """Write an event to the owner; if it is gone, drop the event."""
    with suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


def main() -> None:
    """Run the session that standard input specifies."""
    os.umask(0o077)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Unbuffered: the supervisor itself reads what follows the first line.
    line = FileIO(0, closefd=False).readline()
    if line:
        say(Supervisor(json.loads(line)).run())


if __name__ == "__main__":
    main()
