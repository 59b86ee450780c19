"""Sessions as real processes: clone, environment, output, artefacts, and ending all processes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from headway.runtime.timing import REAL
from headway.systems.automations.session import MARK, SUPERVISOR, End, kill_marked
from headway.systems.automations.supervisor.run_log import LONGEST_LINE, Log
from tests.systems.automations.sessions_rig import (
    JOB,
    LIMIT_S,
    automation,
    commit,
    git,
    lives,
    new_repository,
    pids,
    play,
    until,
)

STUBBORN = """
trap '' TERM
echo $$ > {folder}/self.pid
sh -c 'trap "" TERM; echo $$ > {folder}/child.pid; while :; do sleep 1000; done' &
setsid sh -c 'trap "" TERM; echo $$ > {folder}/away.pid; while :; do sleep 1000; done' &
while :; do sleep 1000; done
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "repository")


async def test_session_works_in_a_clone_of_the_default_branch(tmp_path, repository):
    one = play(tmp_path, automation(repository, "cat hello.txt; git remote get-url origin"))
    end = await one.end()
    assert end.succeeded, one.log
    assert "hello\n" in one.log
    assert str(repository) in one.log
    assert list(one.folders.work.iterdir()) == []


async def test_mirror_is_updated_and_a_ref_is_checked_out(tmp_path, repository):
    git(repository, "branch", "old")
    one = play(tmp_path, automation(repository, "cat hello.txt"))
    assert (await one.end()).succeeded
    commit(repository, {"hello.txt": "changed\n"})
    two = play(tmp_path, automation(repository, "cat hello.txt"), run=2)
    assert (await two.end()).succeeded
    assert "changed" in two.log
    old = play(tmp_path, automation(repository, "cat hello.txt", ref="old", id="old"), run=3)
    assert (await old.end()).succeeded
    assert "changed" not in old.log


async def test_session_can_push_its_commits(tmp_path, repository):
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(bare))
    command = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m by-session"
    one = play(tmp_path, automation(bare, f"{command} && git push -q origin HEAD:main"))
    assert (await one.end()).succeeded, one.log
    assert "by-session" in git(bare, "log", "-1", "main")
    assert git(bare, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


async def test_command_gets_no_variable_that_was_not_given_to_it(tmp_path, repository, monkeypatch):
    for name in ("HEADWAY_SIGNING_KEY", "AWS_SECRET_ACCESS_KEY", "GIVEN"):
        monkeypatch.setenv(name, "s3cret")
    one = play(tmp_path, automation(repository, "env", env={"OWN": "1"}, pass_env=["GIVEN"]))
    assert (await one.end()).succeeded
    found = {line.partition("=")[0] for line in one.log.splitlines()}
    assert {"PATH", "OWN", "GIVEN", "HEADWAY_SESSION_ID", "HEADWAY_AUTOMATION_ID"} <= found
    assert not {"HEADWAY_SIGNING_KEY", "AWS_SECRET_ACCESS_KEY"} & found


async def test_token_in_the_url_reaches_neither_log_nor_mirror_nor_arguments(tmp_path):
    url = "https://ada:T0KENT0KEN@127.0.0.1:9/ada/repo.git"
    one = play(tmp_path, automation(url, "true"))
    end = await one.end()
    assert (end.reason, end.step) == ("setup", "git fetch")
    assert "127.0.0.1" in one.log
    for path in one.folders.root.rglob("*"):
        assert "T0KEN" not in path.name
        assert not path.is_file() or b"T0KEN" not in path.read_bytes(), path


async def test_log_is_private_bounded_and_ends_with_the_status(tmp_path, repository):
    command = "yes 0123456789 | head -c 200000; echo the end; exit 3"
    one = play(tmp_path, automation(repository, command, max_output=5000))
    end = await one.end()
    assert (end.reason, end.status, end.truncated) == ("exit", 3, True)
    assert end.bytes > 200_000
    path = one.folders.log(one.session.id)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size < 6000
    assert one.log.endswith("headway: ended: exit, status 3\n")


async def test_artefacts_are_kept_and_none_from_outside(tmp_path, repository):
    (tmp_path / "outside.txt").write_text("x")
    command = f"mkdir -p out; echo 1 > out/a.txt; ln -s {tmp_path}/outside.txt out/b.txt; exit 1"
    one = play(tmp_path, automation(repository, command, artifacts=["out/*.txt"]))
    assert not (await one.end()).succeeded
    kept = [path.name for path in one.folders.artifacts.rglob("*") if path.is_file()]
    assert kept == ["a.txt"]
    # It was passed over, not tried.
    assert "not kept" not in one.log


async def test_no_artefact_has_the_url_with_its_token(tmp_path, repository):
    command = "ln -s .git/config link; cp .git/config copy; true"
    one = play(tmp_path, automation(repository, command, artifacts=[".git/*", "link", "copy"]))
    assert (await one.end()).succeeded
    kept = [path.name for path in one.folders.artifacts.rglob("*") if path.is_file()]
    assert kept == ["copy"]


async def test_only_artefacts_of_the_newest_sessions_are_kept(tmp_path, repository):
    one = automation(repository, "date > x", artifacts=["x"], keep_artifacts=2)
    for run in (1, 2, 3):
        assert (await play(tmp_path, one, run=run).end()).succeeded
    kept = (tmp_path / "state" / "artifacts" / "one").iterdir()
    assert sorted(path.name[-2:] for path in kept) == ["-2", "-3"]


async def test_worktree_of_a_failed_session_is_kept_if_the_entry_says_so(tmp_path, repository):
    one = play(tmp_path, automation(repository, "touch mark; false", keep_worktree="failed"))
    assert not (await one.end()).succeeded
    (kept,) = one.folders.work.iterdir()
    assert (kept / "repository" / "mark").exists()


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("timeout", marks=pytest.mark.slow),
        "stop",
        pytest.param("lease", marks=pytest.mark.slow),
        "lost",
        "owner",
    ],
)
async def test_every_process_of_a_session_is_gone_at_its_end_however_it_ends(
    tmp_path, repository, how
):
    folder = tmp_path / "pids"
    folder.mkdir()
    # A session with a lost lease gets no time to exit by itself.
    more = {"grace": "1h" if how == "lost" else "200ms"}
    more |= {"timeout": "12s"} if how == "timeout" else {}
    entry = automation(repository, STUBBORN.format(folder=folder), **more)
    one = play(tmp_path, entry, lease_s=12.0 if how == "lease" else 60.0)
    one.renewing = how != "lease"
    running = asyncio.ensure_future(one.end(every_s=0.2))
    await until(lambda: len(pids(folder)) == 3 or running.done())
    found = pids(folder)
    assert len(found) == 3
    if how == "stop":
        one.session.end("cancelled")
    elif how == "lost":
        one.lost = True
    elif how == "owner":
        running.cancel()
        await until(lambda: one.session._ending is not None)
        while not running.done():
            running.cancel()
            await REAL.pause(0.01)
        with pytest.raises(asyncio.CancelledError):
            await running
    if how != "owner":
        end = await running
        assert end.reason == {"stop": "cancelled"}.get(how, how)
    assert not [pid for pid in found if lives(pid)]
    process = one.session._process
    assert process is not None
    assert process.returncode is not None


async def test_session_ends_with_its_lock_whatever_its_own_timeout(tmp_path, repository):
    one = play(tmp_path, automation(repository, "sleep 600", timeout="1h"))
    one.session.lock_timeout_ms = 2_000
    assert (await one.end()).reason == "timeout"


async def test_command_may_exit_gracefully_after_its_timeout(tmp_path, repository):
    command = "trap 'sleep 1; echo saved; exit 0' TERM; while :; do sleep 0.1; done"
    one = play(tmp_path, automation(repository, command, timeout="2s", grace="60s"))
    assert (await one.end()).reason == "timeout"
    assert "saved\n" in one.log


async def test_processes_left_running_by_a_command_end_with_it(tmp_path, repository):
    folder = tmp_path / "pids"
    folder.mkdir()
    wait = f"while [ ! -s {folder}/left.pid ]; do sleep 0.05; done"
    command = f"setsid sh -c 'echo $$ > {folder}/left.pid; sleep 1000' & {wait}"
    one = play(tmp_path, automation(repository, command))
    assert (await one.end()).succeeded
    (left,) = pids(folder)
    assert not lives(left)


async def test_dead_orphans_of_a_running_command_are_reaped(tmp_path, repository):
    """They count as processes, so a long session would end at the limit of processes."""
    dead = 'grep -l "^State:.Z" /proc/[0-9]*/status 2> /dev/null | xargs -r grep -h PPid'
    command = f"""
        (true &); (true &)
        while {dead} | grep -qw $PPID; do sleep 0.1; done
        """
    one = play(tmp_path, automation(repository, command, timeout="30s"))
    assert str(await one.end()) == "status 0"


def test_dead_children_are_reaped_with_one_search_for_others():
    program = """
import os, sys
sys.path.insert(0, sys.argv[1])
import processes
for _ in range(5):
    if not (pid := os.fork()):
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
searches, processes.descendants = [], lambda root: searches.append(root) or []
processes.kill_all()
print(len(searches))
"""
    words = [sys.executable, "-I", "-S", "-c", program, str(SUPERVISOR)]
    assert subprocess.check_output(words, text=True, timeout=LIMIT_S) == "1\n"


async def test_killed_supervisor_leaves_no_process(tmp_path, repository):
    folder = tmp_path / "pids"
    folder.mkdir()
    one = play(tmp_path, automation(repository, STUBBORN.format(folder=folder)))
    running = asyncio.ensure_future(one.end())
    await until(lambda: len(pids(folder)) == 3)
    found = pids(folder)
    assert one.session._process is not None
    os.kill(one.session._process.pid, signal.SIGKILL)
    assert await running == End(reason="killed")
    await until(lambda: not any(map(lives, found)))


def test_process_that_a_killed_one_started_just_before_is_killed_too(monkeypatch):
    env = {**os.environ, MARK: f"cron:one:{uuid4()}"}
    sleeping = [subprocess.Popen(["sleep", "1000"], env=env)]
    kill = os.kill

    def fork_and_kill(pid: int, number: int) -> None:
        if len(sleeping) == 1:
            sleeping.append(subprocess.Popen(["sleep", "1000"], env=env))
        kill(pid, number)

    monkeypatch.setattr(os, "kill", fork_and_kill)
    kill_marked(env[MARK], None)
    for one in sleeping:
        one.terminate()
    assert [one.wait() for one in sleeping] == [-signal.SIGKILL, -signal.SIGKILL]


async def test_frozen_supervisor_is_killed_when_the_lease_is_lost(tmp_path, repository):
    folder = tmp_path / "pids"
    folder.mkdir()
    one = play(tmp_path, automation(repository, STUBBORN.format(folder=folder)))
    running = asyncio.ensure_future(one.end(every_s=0.2))
    await until(lambda: len(pids(folder)) == 3)
    found = pids(folder)
    assert one.session._process is not None
    os.kill(one.session._process.pid, signal.SIGSTOP)
    one.lost = True
    assert (await running).reason == "killed"
    await until(lambda: not any(map(lives, found)))


async def test_broken_mirror_is_kept_aside_and_recreated(tmp_path, repository):
    entry = automation(repository, "cat hello.txt")
    assert (await play(tmp_path, entry).end()).succeeded
    (mirror,) = (tmp_path / "state" / "mirrors").glob("*.git")
    (mirror / "HEAD").write_bytes(b"\0\0\0")
    two = play(tmp_path, entry, run=2)
    assert (await two.end()).succeeded, two.log
    assert two.session.remade == ["mirror"]
    assert len(list(mirror.parent.glob("*.broken-*"))) == 1


async def test_repository_behind_a_link_may_move(tmp_path, repository):
    link = tmp_path / "link"
    link.symlink_to(repository)
    entry = automation(link, "cat hello.txt; git remote get-url origin")
    assert entry.repository.key == str(repository)
    link.unlink()
    link.symlink_to(repository.rename(tmp_path / "moved"))
    one = play(tmp_path, entry)
    assert (await one.end()).succeeded, one.log
    assert f"hello\n{link}\n" in one.log


async def test_missing_repository_is_reported_with_the_message_of_git(tmp_path):
    one = play(tmp_path, automation(tmp_path / "nothing", "true"))
    end = await one.end()
    assert str(end).startswith("setup failed at git fetch (128): fatal: ")
    assert "does not appear to be a git repository" in one.log


def test_printed_token_is_masked_even_where_a_read_splits_it(tmp_path):
    log = Log(str(tmp_path / "log"), 10_000, ["T0KENT0KEN"])
    for part in (b"it is T0KEN", b"T0KEN, from https://ada:s3", b"cret@host/x\nlast T0KENT0KEN"):
        log.feed(part)
    log.flush()
    text = (tmp_path / "log").read_text()
    assert text == "it is ***, from https://***@host/x\nlast ***"


@pytest.mark.parametrize("before", range(LONGEST_LINE - 12, LONGEST_LINE + 2))
def test_token_is_masked_where_a_too_long_line_is_written_in_parts(tmp_path, before):
    log = Log(str(tmp_path / "log"), 10 * LONGEST_LINE, ["T0KENT0KEN"])
    text = b"." * before + b"T0KENT0KEN" + b"." * LONGEST_LINE + b" https://ada:s3cret@host/x\n"
    for start in range(0, len(text), before + 5):
        log.feed(text[start : start + before + 5])
    log.flush()
    assert (tmp_path / "log").read_bytes() == (
        b"." * before + b"***" + b"." * LONGEST_LINE + b" https://***@host/x\n"
    )


async def test_mirror_with_a_damaged_file_is_kept_aside_and_recreated(tmp_path, repository):
    entry = automation(repository, "cat hello.txt")
    assert (await play(tmp_path, entry).end()).succeeded
    (mirror,) = (tmp_path / "state" / "mirrors").glob("*.git")
    blob = git(repository, "rev-parse", "HEAD:hello.txt").strip()
    for pack in (mirror / "objects" / "pack").glob("*.pack"):
        moved = pack.rename(tmp_path / pack.name)
        unpack(mirror, moved)
    file = mirror / "objects" / blob[:2] / blob[2:]
    file.chmod(0o600)
    file.write_bytes(b"damaged")
    two = play(tmp_path, entry, run=2)
    assert (await two.end()).succeeded, two.log
    assert two.session.remade == ["mirror"]
    assert "hello\n" in two.log


def kill_git_with_its_locks(mirror: Path) -> None:
    command = ["git", "update-ref", "--stdin"]
    killed = subprocess.Popen(command, cwd=mirror, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert killed.stdin is not None
    assert killed.stdout is not None
    killed.stdin.write(b"start\ndelete refs/heads/main\nprepare\n")
    killed.stdin.flush()
    # It answers both once it holds its locks.
    assert [killed.stdout.readline() for _ in range(2)] == [b"start: ok\n", b"prepare: ok\n"]
    killed.kill()
    killed.communicate()
    assert (mirror / "refs" / "heads" / "main.lock").exists()


async def test_locks_of_a_killed_git_do_not_block_the_mirror(tmp_path, repository):
    entry = automation(repository, "cat hello.txt")
    assert (await play(tmp_path, entry).end()).succeeded
    (mirror,) = (tmp_path / "state" / "mirrors").glob("*.git")
    kill_git_with_its_locks(mirror)
    partial = mirror / "objects" / "pack" / "tmp_pack_a1b2c3"
    partial.write_bytes(b"PACK")
    repacked = mirror / "objects" / "pack" / ".tmp-123-pack-a1b2c3.pack"
    repacked.write_bytes(b"PACK")
    commit(repository, {"hello.txt": "changed\n"})
    two = play(tmp_path, entry, run=2)
    assert (await two.end()).succeeded, two.log
    assert "changed\n" in two.log
    assert two.session.remade == []
    assert not partial.exists()
    assert not repacked.exists()


async def test_mirror_stays_small_and_keeps_what_a_worktree_shares(tmp_path, repository):
    one = play(tmp_path, automation(repository, "false", keep_worktree="failed"))
    assert (await one.end()).status == 1
    (kept,) = one.folders.work.glob("*.kept")
    (mirror,) = one.folders.mirrors.glob("*.git")
    for n in range(8):
        if n == 2:
            # The branch is replaced: the mirror has no ref to the commits before this.
            git(repository, "checkout", "-q", "--orphan", "other")
        commit(repository, {"hello.txt": f"{n}\n"})
        git(repository, "update-ref", "refs/heads/main", "HEAD")
        last = play(tmp_path, automation(repository, "cat hello.txt"), run=n + 2)
        assert (await last.end()).succeeded, last.log
        assert f"{n}\n" in last.log
    count = dict(line.split(": ") for line in git(mirror, "count-objects", "-v").splitlines())
    assert (count["count"], count["garbage"]) == ("0", "0")
    assert int(count["packs"]) <= 5
    assert (kept / "repository" / "hello.txt").read_text() == "hello\n"
    assert git(kept / "repository", "show", "HEAD:hello.txt") == "hello\n"


async def test_mirror_that_is_unused_for_long_is_removed_unless_it_is_locked(tmp_path, repository):
    others = {
        name: new_repository(tmp_path / name, {"a": name}) for name in ("gone", "held", "used")
    }
    for name, other in others.items():
        assert (await play(tmp_path, automation(other, "true", id=name)).end()).succeeded
    mirrors = tmp_path / "state" / "mirrors"
    for name in ("gone", "held"):
        (mirror,) = mirrors.glob(f"*-{name}-*.git")
        os.utime(mirror / "FETCH_HEAD", (1_000_000_000, 1_000_000_000))
    # Of a process that was killed while it deleted it.
    (mirrors / "old.git.unused").mkdir()
    (lock,) = mirrors.glob("*-held-*.lock")
    with lock.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert (await play(tmp_path, automation(repository, "true")).end()).succeeded
    left = {one.name.split("-")[-2] for one in mirrors.iterdir() if one.suffix != ".lock"}
    assert left == {"held", "used", "repository"}
    again = play(tmp_path, automation(others["gone"], "cat a", id="gone"), run=2)
    assert (await again.end()).succeeded
    assert again.session.remade == []


async def test_worktree_in_the_way_is_kept_aside_and_recreated(tmp_path, repository):
    one = play(tmp_path, automation(repository, "cat hello.txt"))
    left = one.folders.work / f"{JOB}-1" / "repository"
    left.mkdir(parents=True)
    (left / "hello.txt").write_text("of another run\n")
    assert (await one.end()).succeeded, one.log
    assert one.session.remade == ["worktree"]
    assert "another run" not in one.log
    (kept,) = one.folders.work.iterdir()
    assert (kept / "repository" / "hello.txt").read_text() == "of another run\n"


async def test_mirror_prepared_by_another_session_is_waited_for(tmp_path, repository):
    one = play(tmp_path, automation(repository, "true"))
    assert (await one.end()).succeeded
    (mirror,) = one.folders.mirrors.glob("*.lock")
    other = mirror.open("w")
    fcntl.flock(other, fcntl.LOCK_EX)
    two = play(tmp_path, automation(repository, "true", timeout="1s"), run=2)
    end = await two.end()
    other.close()
    assert (end.reason, end.step) == ("timeout", "mirror lock")


async def test_worktree_is_locked_while_its_session_runs(tmp_path, repository):
    hold = tmp_path / "hold"
    hold.touch()
    one = play(tmp_path, automation(repository, f"while [ -e {hold} ]; do sleep 0.05; done"))
    running = asyncio.ensure_future(one.end())
    await until(lambda: one.session.pid is not None)
    (work,) = one.folders.work.iterdir()
    folder = os.open(work, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(folder)
        hold.unlink()
    assert (await running).succeeded


async def test_worktree_of_a_killed_supervisor_is_removed_and_a_live_one_is_not(
    tmp_path, repository
):
    one = play(tmp_path, automation(repository, "true"))
    long_ago = 1_000_000_000
    for name in ("left", "live", "failed.kept"):
        (one.folders.work / name).mkdir()
        os.utime(one.folders.work / name, (long_ago, long_ago))
    # Its supervisor has just created it, and is about to lock it.
    (one.folders.work / "new").mkdir()
    live = os.open(one.folders.work / "live", os.O_RDONLY)
    fcntl.flock(live, fcntl.LOCK_EX)
    try:
        assert (await one.end()).succeeded
    finally:
        os.close(live)
    left = sorted(path.name for path in one.folders.work.iterdir())
    assert left == ["failed.kept", "live", "new"]


@pytest.mark.parametrize(
    ("url", "ref", "said", "permanent"),
    [
        ("{tmp}/nothing", None, "does not appear to be a git repository", True),
        ("{tmp}/repository", "gone", "invalid reference: gone", True),
        ("http://127.0.0.1:9/a/b", None, "Failed to connect", False),
    ],
)
async def test_setup_failure_shows_the_message_of_git_and_whether_it_will_fail_again(
    tmp_path, repository, url, ref, said, permanent
):
    more = {} if ref is None else {"ref": ref}
    end = await play(tmp_path, automation(url.format(tmp=tmp_path), "true", **more)).end()
    assert said in str(end)
    assert "; ;" not in str(end)
    assert end.permanent is permanent


async def test_missing_git_is_named(tmp_path, repository, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    end = await play(tmp_path, automation(repository, "true")).end()
    assert str(end) == (
        "setup failed at git init: git is not installed, or not in the PATH of the service"
    )
    assert not end.permanent


def unpack(mirror: Path, pack: Path) -> None:
    with pack.open("rb") as packed:
        subprocess.run(["git", "unpack-objects", "-q"], cwd=mirror, stdin=packed, check=True)


def test_long_word_costs_the_log_no_more_than_many_short_ones(tmp_path):
    """A quadratic pattern would read for minutes; the supervisor would miss the lease's end."""
    log = Log(str(tmp_path / "log"), 10_000_000, ["T0KENT0KEN"])
    for _ in range(100):
        log.feed(b"0af3" * 15_000)
    log.flush()
    assert (tmp_path / "log").stat().st_size == log.bytes


def test_log_on_a_full_device_is_truncated_and_raises_nothing():
    log = Log("/dev/full", 10_000, [])
    log.feed(b"one\n")
    log.note("ended: exit, status 0")
    assert log.truncated
    # It is the reason if this step fails.
    log.feed(b"two\nfatal: no space\n")
    assert log.last == b"one\ntwo\nfatal: no space\n"


async def test_session_whose_log_cannot_be_created_ends_as_without_it(tmp_path, repository):
    one = play(tmp_path, automation(repository, "exit 3"))
    one.folders.logs.rmdir()
    end = await one.end()
    assert (end.reason, end.status, end.truncated) == ("exit", 3, True)
    one = play(tmp_path, automation(tmp_path / "nowhere", "true"))
    one.folders.logs.rmdir()
    assert "does not appear to be a git repository" in str(await one.end())


async def test_unwritable_folders_are_removed_with_the_worktree(tmp_path, repository):
    """Root may write them anyway, so only the tests of another user show a difference."""
    command = "mkdir -p module/a && touch module/a/x && chmod -R a-w module && chmod 0 ../../*"
    one = play(tmp_path, automation(repository, command))
    assert (await one.end()).succeeded, one.log
    assert list(one.folders.work.iterdir()) == []


async def test_artefact_that_cannot_be_kept_does_not_stop_the_others(tmp_path, repository):
    command = r"touch a.txt b.txt $(printf '\377').txt; false"
    entry = automation(repository, command, artifacts=["?.txt"], keep_worktree="failed")
    one = play(tmp_path, entry)
    to = one.folders.artifacts / "one" / f"{JOB}-1"
    (to / "a.txt").mkdir(parents=True)
    (to / os.fsdecode(b"\xff.txt")).mkdir()
    assert (await one.end()).reason == "exit"
    assert (to / "b.txt").is_file()
    assert "headway: artefact a.txt not kept: Is a directory\n" in one.log
    assert "headway: artefact ?.txt not kept: Is a directory\n" in one.log
    (kept,) = one.folders.work.iterdir()
    assert kept.name.endswith(".kept")


async def test_detached_head_is_checked_out(tmp_path, repository):
    git(repository, "commit", "-q", "--allow-empty", "-m", "on the branch")
    git(repository, "checkout", "-q", "--detach")
    git(repository, "commit", "-q", "--allow-empty", "-m", "on no branch")
    git(repository, "branch", "-m", "main", "trunk")
    entry = automation(repository, "git log -1 --format=%s")
    assert (await (one := play(tmp_path, entry)).end()).succeeded, one.log
    assert "on no branch" in one.log
    git(repository, "checkout", "-q", "trunk")
    assert (await (two := play(tmp_path, entry, run=2)).end()).succeeded, two.log
    assert two.log.count("on the branch") == 1
