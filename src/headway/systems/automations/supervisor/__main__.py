"""The steps of a session: prepares the repository, runs the command, and keeps the artefacts."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re
import shutil
import time
from contextlib import suppress
from io import FileIO
from typing import Any

from files import flock, remove
from processes import (
    PR_SET_CHILD_SUBREAPER,
    SessionEnded,
    SessionProcesses,
    kill_all,
    prctl,
    send_event,
)
from run_log import Log

SETUP_REASON = "setup"


class Supervisor:
    """Runs the steps of one session, one after another."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.log = Log(spec["log"], spec["max_output"], spec["secrets"])
        self.processes = SessionProcesses(
            self.log,
            lease_until=float(spec["until"]),
            timeout_at=time.monotonic() + spec["timeout_s"],
            grace_s=spec["grace_s"],
        )
        self.step = "worktree"

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
        except SessionEnded as ending:
            reason = ending.reason
        except OSError as failure:
            error = f"{failure.filename or ''}: {failure.strerror}"
            if failure.filename == "git":
                error = "git is not installed, or not in the PATH of the service"
            self.log.note(f"{self.step}: {error}")
            reason = SETUP_REASON
        if reason == SETUP_REASON and not error:
            error = "; ".join(filter(None, self.log.last.decode(errors="replace").split("\n")))
        if self.step == "command":
            self._copy_artifacts()
        self._keep_or_delete_work(failed=reason != "exit" or bool(status))
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
                self.processes.wait(None, 0.2)
            remove_git_leftovers(spec["mirror"])
            status = self._prepare(folder)
            if status:
                self._set_aside_broken_mirror()
                remove(folder)
                if not os.path.exists(spec["mirror"]):
                    status = self._prepare(folder)
        finally:
            os.close(lock)
        if status:
            return status
        self.step = "command"
        command = spec["command"]
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        self.log.note("started")
        return self.processes.run(argv, spec["env"], folder, report_pid=True)

    def _prepare(self, folder: str) -> int:
        """Update the mirror, and clone from it.

        Returns:
            The exit status of the step that failed, or 0.
        """
        status = self._create_mirror() or self._update_mirror()
        return status or self._clone(folder)

    def _create_mirror(self) -> int:
        mirror = self.spec["mirror"]
        if os.path.exists(mirror):
            return 0
        status = self._git("init", "--quiet", "--bare", mirror)
        # Objects that a worktree still shares must not be garbage-collected.
        return status or self._git("-C", mirror, "config", "gc.auto", "0")

    def _update_mirror(self) -> int:
        at = ("-C", self.spec["mirror"])
        heads = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        status = self._git(*at, "fetch", "--quiet", "--prune", "--no-auto-gc", "origin", *heads)
        if not status and self.spec["ref"] is None:
            status = self._update_head()
        if not status:
            # Join small packs and loose objects. This deletes no object, unlike `git gc`. If it
            # fails, or if git is older than 2.32, the mirror is only larger.
            self._git(*at, "repack", "-d", "--quiet", "--geometric=2", into=bytearray())
        return status

    def _update_head(self) -> int:
        """Point the mirror's HEAD at the branch or commit that the repository's HEAD names."""
        at = ("-C", self.spec["mirror"])
        found = bytearray()
        status = self._git(*at, "ls-remote", "--symref", "origin", "HEAD", into=found)
        if status:
            self.log.feed(bytes(found))
            return status
        branch = re.search(rb"ref: (refs/heads/\S+)\s+HEAD", bytes(found))
        if branch:
            return self._git(*at, "symbolic-ref", "HEAD", branch[1].decode())
        if found:
            # The HEAD of the repository is detached, perhaps at a commit of no branch.
            status = self._git(*at, "fetch", "--quiet", "--no-auto-gc", "origin", "HEAD")
            status = status or self._git(*at, "update-ref", "--no-deref", "HEAD", "FETCH_HEAD")
        return status

    def _clone(self, folder: str) -> int:
        mirror, ref = self.spec["mirror"], self.spec["ref"]
        status = self._git("clone", "--quiet", "--shared", "--no-checkout", mirror, folder)
        if status:
            return status
        self._point_at_origin(folder)
        return self._git("-C", folder, "checkout", "--quiet", *([ref, "--"] if ref else []))

    def _git(self, *arguments: str, into: bytearray | None = None) -> int:
        """Run git as the next step.

        Args:
            into: receives the output instead of the log.
        """
        subcommand = arguments[2] if arguments[0] == "-C" else arguments[0]
        self.step, self.log.last = f"git {subcommand}", b""
        # The URL is not an argument, which other users could see, and is not stored in the mirror.
        origin = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "remote.origin.url",
            "GIT_CONFIG_VALUE_0": self.spec["url"],
        }
        env = self.spec["git_env"] | {"GIT_TERMINAL_PROMPT": "0"}
        if subcommand != "clone":
            env |= origin
        return self.processes.run(["git", *arguments], env, self.spec["work"], into=into)

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

    def _set_aside_broken_mirror(self) -> None:
        """Check the mirror, and keep it under another name if it is broken."""
        mirror = self.spec["mirror"]
        if not os.path.exists(mirror):
            return
        step, last = self.step, self.log.last
        # A checkout also fails at broken contents of files, which only a full check reads.
        quick = [] if step == "git checkout" else ["--connectivity-only"]
        if self._git("-C", mirror, "fsck", "--no-dangling", *quick, into=bytearray()):
            self._set_aside("mirror", mirror)
        # The session reports the step that failed, not this check.
        self.step, self.log.last = step, last

    def _set_aside(self, what: str, path: str) -> None:
        """Keep something broken next to its replacement, for inspection."""
        kept = f"{path}.broken-{os.getpid()}"
        os.rename(path, kept)
        self.log.note(f"the {what} was broken; it was kept at {kept} and recreated")
        send_event({"event": "remade", "what": what, "kept": kept})

    def _copy_artifacts(self) -> None:
        folder = os.path.join(self.spec["work"], "repository")
        for pattern in self.spec["artifacts"]:
            for found in glob.glob(pattern, root_dir=folder, recursive=True):
                try:
                    _copy(folder, found, self.spec["artifacts_to"])
                except OSError as error:
                    self.log.note(f"artefact {found} not kept: {error.strerror}")

    def _keep_or_delete_work(self, *, failed: bool) -> None:
        """Delete the work folder or keep it, as the entry says."""
        spec = self.spec
        if spec["keep_worktree"] == "failed" and failed:
            try:
                os.rename(spec["work"], f"{spec['work']}.kept")
            except OSError as error:
                self.log.note(f"worktree not kept: {error}")
        else:
            remove(spec["work"])


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


def main() -> None:
    """Run the session that standard input specifies."""
    os.umask(0o077)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Unbuffered: the supervisor itself reads what follows the first line.
    line = FileIO(0, closefd=False).readline()
    if line:
        send_event(Supervisor(json.loads(line)).run())


if __name__ == "__main__":
    main()
