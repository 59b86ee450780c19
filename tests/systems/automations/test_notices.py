"""Notices sent by apprise to a real receiver, and entries that have failed permanently."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headway.runtime.timing import REAL
from headway.systems.automations.config import parse_config
from headway.systems.automations.folders import Folders
from headway.systems.automations.notices import Notices
from tests.systems.automations.sessions_rig import git, new_repository
from tests.systems.automations.test_dispatching import entry, service

SECRET = "T0KENT0KEN"  # noqa: S105  (of a test)
HEAD = """[dispatcher.notifications]
on_start = {start}
on_complete = {complete}
on_error = {error}
channels = ["{url}"]
"""
# apprise loads its services when the first address is added, and one of them imports imghdr.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


class Receiver:
    """Receives what apprise posts to `json://`."""

    def __init__(self) -> None:
        taken = self.taken = list[dict[str, Any]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                taken.append(json.loads(self.rfile.read(length)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://ada:{SECRET}@127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def titles(self) -> list[str]:
        return [one["title"] for one in self.taken]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.server.shutdown()
    one.server.server_close()


def head(receiver: Receiver, **wanted: bool) -> str:
    words = {name: str(wanted.get(name, False)).lower() for name in ("start", "complete", "error")}
    return HEAD.format(url=receiver.url, **words)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "repository")


async def test_starts_ends_and_errors_are_announced_on_request(tmp_path, repository, receiver):
    url = f"sqlite:///{tmp_path}/h.db"
    entries = (entry("good", repository), entry("bad", repository, "exit 3"))
    wanted = head(receiver, start=True, complete=True, error=True)
    async with service(tmp_path, url, *entries, head=wanted) as one:
        await one.until(lambda: _async(len(receiver.taken) == 4))
        assert sorted(receiver.titles) == [
            "bad: error", "bad: start", "good: complete", "good: start"
        ]  # fmt: skip
        (bad,) = [told for told in receiver.taken if told["title"] == "bad: error"]
        assert "failed: status 3" in bad["message"]
        types = {told["title"]: told["type"] for told in receiver.taken}
        assert (types["bad: error"], types["bad: start"]) == ("failure", "success")
        notices = (await one.get("/notices"))["notices"]
        assert {told["event"] for told in notices} == {"start", "complete", "error"}
        assert notices[0]["at"] >= notices[-1]["at"]
    for path in (tmp_path / "state").rglob("*.log"):
        assert SECRET not in path.read_text()


async def test_locked_sessions_and_unwanted_events_are_not_announced(
    tmp_path, repository, receiver
):
    url = f"sqlite:///{tmp_path}/h.db"
    entries = (entry("a", repository), entry("b", repository), entry("c", repository, "exit 3"))
    async with service(tmp_path, url, *entries, head=head(receiver)) as one:
        for name, status in (("a", "succeeded"), ("b", "succeeded"), ("c", "failed")):
            await one.ended(name, status)
        assert (await one.get("/notices"))["notices"] == []
    assert receiver.taken == []


async def test_invalid_entry_is_announced_once_until_repaired(tmp_path, repository, receiver):
    url = f"sqlite:///{tmp_path}/h.db"
    good, bad = entry("good", repository), entry("bad", repository, schedule="moonrise")
    for _ in range(2):
        async with service(tmp_path, url, good, bad, head=head(receiver)) as one:
            await one.ended("good")
            one.write("# an edit above it", good, bad, head=head(receiver))
            await one.post("/dispatch")
    # The second service learned from the first one's file that the notice had been sent.
    async with service(tmp_path, url, good, head=head(receiver)) as one:
        await one.post("/dispatch")
        one.write(good, bad, head=head(receiver))
        await one.until(lambda: _async(len(receiver.taken) == 2))
    assert receiver.titles == ["bad: invalid entry"] * 2
    assert "automations.toml:" in receiver.taken[0]["message"]


async def test_permanently_failing_entry_is_announced_and_skipped_until_edited(
    tmp_path, repository, receiver
):
    url = f"sqlite:///{tmp_path}/h.db"
    wrong = entry("a", repository, ref="gone", retries=5)
    async with service(tmp_path, url, wrong, head=head(receiver)) as one:

        async def skipped() -> bool:
            return (await one.row("a"))["status"] == "skipped"

        await one.until(skipped)
        row = await one.row("a")
        assert (row["enabled"], row["next"]) == (False, None)
        assert "invalid reference: gone" in row["reason"]
        await one.until(lambda: _async(bool(receiver.taken)))
        assert receiver.titles == ["a: spawn failure"]
        assert "skipped until its entry is edited" in receiver.taken[0]["message"]
        assert (await one.get("/dispatcher/health"))["status"] == "degraded"
        result = await one.post("/dispatch")
        assert result["skipped"]["disabled"] == 1
        assert "skipped until its entry is edited" in result["errors"][0]["error"]
        # Neither a restart nor an edit of another entry makes it fire.
        one.write(wrong, entry("b", repository), head=head(receiver))
        await one.ended("b")
        assert await skipped()
        one.write(entry("a", repository, ref="main"), head=head(receiver))

        async def enabled() -> bool:
            return (await one.row("a"))["enabled"]

        await one.until(enabled)
        assert (await one.get("/dispatcher/health"))["status"] == "healthy"


async def test_permanently_failed_entry_fires_again_after_a_successful_session(
    tmp_path, repository
):
    url = f"sqlite:///{tmp_path}/h.db"
    async with service(tmp_path, url, entry("a", repository, ref="later")) as one:

        async def enabled() -> bool:
            return (await one.row("a"))["enabled"]

        async def skipped() -> bool:
            return not await enabled()

        await one.until(skipped)
        git(repository, "branch", "later")
        await one.post("/a/run")
        await one.until(enabled)
        assert (await one.row("a"))["status"] == "succeeded"


async def test_recreated_mirror_is_announced(tmp_path, repository, receiver):
    url = f"sqlite:///{tmp_path}/h.db"
    folders = Folders(root=tmp_path / "state")
    folders.make()
    async with service(tmp_path, url, entry("a", repository), head=head(receiver)) as one:
        await one.ended("a")
        (mirror,) = folders.mirrors.glob("*.git")
        (mirror / "HEAD").write_bytes(b"\0")
        await one.post("/a/run")
        await one.until(lambda: _async(bool(receiver.taken)))
        assert receiver.titles == ["a: recovery"]
        assert "mirror" in receiver.taken[0]["message"]


async def test_health_is_degraded_by_a_recreated_mirror_until_a_session_succeeds(
    tmp_path, repository
):
    url = f"sqlite:///{tmp_path}/h.db"
    other = new_repository(tmp_path / "other")
    entries = [entry("a", repository), entry("b", other)]
    async with service(tmp_path, url, *entries) as one:
        await one.ended("a")
        await one.ended("b")
        (mirror,) = (tmp_path / "state" / "mirrors").glob("*repository*.git")
        (mirror / "HEAD").write_bytes(b"\0")

        async def spawned(count: int) -> None:
            async def ended() -> bool:
                told = await one.get("/dispatcher/metrics")
                return told["totalAutomationsSpawned"] == count and not told["activeAutomations"]

            await one.until(ended)

        async def health() -> str:
            return (await one.get("/dispatcher/health"))["status"]

        assert await health() == "healthy"
        await one.post("/a/run")
        await one.until(lambda: _is(health, "degraded"))
        await one.post("/b/run")
        await spawned(4)
        assert await health() == "degraded"
        await one.post("/a/run")
        await one.until(lambda: _is(health, "healthy"))


def test_channel_unknown_to_apprise_is_reported_without_its_text(tmp_path):
    text = f'[dispatcher]\nmax_concurrent = 7\nnotifications = {{channels = ["no://{SECRET}"]}}\n'
    config = parse_config(text, tmp_path / "automations.toml")
    (fault,) = config.faults
    assert fault.line == 3
    assert "channel 1 is not a URL that apprise knows" in fault.error
    assert SECRET not in repr(config)
    assert config.dispatcher.max_concurrent == 7


def test_pending_notices_are_sent_before_a_process_exits(tmp_path, receiver):
    config = parse_config(head(receiver, complete=True), tmp_path / "automations.toml")
    notices = Notices(timing=REAL, memory=tmp_path / "faults.json")
    notices.use(config.dispatcher.notifications)
    for number in range(5):
        notices.add("complete", "succeeded", automation_id=f"a{number}")
    notices.close()
    assert receiver.titles == [f"a{number}: complete" for number in range(5)]


async def _async(value: bool) -> bool:
    return value


async def _is(ask: Callable[[], Awaitable[str]], value: str) -> bool:
    return await ask() == value
