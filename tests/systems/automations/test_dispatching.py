"""The service: the file, the timetable, locks, the limit, health and metrics, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote
from uuid import uuid4

import pytest
import structlog
from structlog.testing import LogCapture

from headway.app import App
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareEntry, DeclareGate, DefineRequest
from headway.contract.operate import Acted, ActReply, ActRequest, Edit, Verb
from headway.contract.outcomes import Failed, HandedOver, SettleRequest
from headway.contract.views import (
    EntryView,
    JobQuery,
    JobsQuery,
    JobView,
    StatsQuery,
    TimetableQuery,
)
from headway.core.errors import InvalidValue, StoreUnavailable, UnknownJob
from headway.core.gates.slots import Slots
from headway.core.job import NewJob
from headway.core.state import State
from headway.core.timetable.schedule import format_schedule
from headway.runtime.chores import TimetableChore
from headway.runtime.handler_results import Dead
from headway.runtime.job import Job
from headway.runtime.timing import REAL, Timing
from headway.runtime.worker.worker import Worker
from headway.server import middleware
from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.systems.automations import dispatcher as dispatcher_module
from headway.systems.automations import make, session
from headway.systems.automations.dispatcher import KIND, LANE, Dispatcher
from headway.systems.automations.folders import Folders
from headway.systems.automations.reports import health, listing, release, session_of
from headway.systems.automations.runner import SessionRunner
from headway.systems.automations.session import AutomationSession, End
from headway.testing.clock import FakeClock
from headway.testing.faulty import Fault, FaultyStore, StoreProxy
from tests.runtime.observed_store import beat_soon
from tests.server.rig import Rig, serving
from tests.servers.stores import EVERYWHERE, ON_SERVERS, NewUrl
from tests.systems.automations.sessions_rig import (
    LIMIT_S,
    automation,
    lives,
    new_repository,
    pids,
)

API = "/api/automations"


@dataclass(kw_only=True)
class Service:
    """A server with the system, its worker, and its file."""

    rig: Rig
    app: App
    file: Path
    folder: Path
    worker: Worker

    async def get(self, path: str = "") -> Any:
        reply = await self.rig.http.get(API + path)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def post(self, path: str) -> Any:
        reply = await self.rig.http.post(API + path)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def row(self, name: str) -> dict[str, Any]:
        rows = (await self.get())["automations"]
        return next((one for one in rows if one["id"] == name), {"status": None})

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Repeat a query over HTTP until its result is true; return the result."""
        async with asyncio.timeout(LIMIT_S):
            while not (found := await condition()):
                await REAL.pause(0.05)
            return found

    async def ended(self, name: str, status: str = "succeeded") -> dict[str, Any]:
        if status == "cancelled":
            # The worker learns of it from a beat; one is due every 10 seconds.
            beat_soon(self.worker)

        async def look() -> dict[str, Any] | None:
            row = await self.row(name)
            return row if row["status"] in {"succeeded", "failed", "cancelled"} else None

        row = await self.until(look)
        assert row["status"] == status, row
        return row

    def write(self, *entries: str, head: str = "") -> None:
        text = "\n".join([head, *entries])
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.rename(self.file)


def entry(name: str, repository: Path, command: str = "true", **more: Any) -> str:
    given = {"schedule": "30m", **more}
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
    head = f"[[automation]]\nid = '{name}'\nrepository = '{repository}'"
    return "\n".join([head, f"command = '''{command}'''", *lines, ""])


@asynccontextmanager
async def service(
    tmp_path: Path,
    url: str,
    *entries: str,
    head: str = "",
    lease: str = "60s",
    missing: bool = False,
) -> AsyncIterator[Service]:
    file = tmp_path / "automations.toml"
    file.write_text("\n".join([head, *entries]))
    if missing:
        file.unlink()
    settings = {"file": str(file), "state_dir": str(tmp_path / "state"), "lease": lease}
    system = make({**settings, "look_each": "50ms"})
    app = App(url)
    system.declare(app)
    try:
        async with serving(app=app, systems=[system], tokens=False) as rig:
            worker = app.worker(
                lanes="automations", concurrency=50, prefetch=0, grace="0s", heartbeat="task"
            )
            working = asyncio.create_task(worker.run())
            try:
                yield Service(rig=rig, app=app, file=file, folder=tmp_path, worker=worker)
            finally:
                worker.stop()
                await working
    finally:
        await app.close_async()


STORES = [
    pytest.param(kind, marks=pytest.mark.slow) if kind in ON_SERVERS else kind
    for kind in EVERYWHERE
]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, new_url: NewUrl) -> str:
    return new_url(request.param)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "repository")


def holding(tmp_path: Path, name: str = "go") -> str:
    """Return a command that signals that it runs, and continues until it is released."""
    mark = tmp_path / f"{name}.$HEADWAY_AUTOMATION_ID.pid"
    return f"echo $$ > {mark}; while [ ! -e {tmp_path}/{name} ]; do sleep 0.05; done"


async def test_interval_that_never_ran_is_due_at_once_and_a_cron_is_not(tmp_path, repository, url):
    entries = (
        entry("each", repository, "cat hello.txt"),
        entry("daily", repository, schedule="at 09:00"),
    )
    async with service(tmp_path, url, *entries) as one:
        await one.ended("each")
        row = await one.row("daily")
        assert (row["status"], row["enabled"]) == (None, True)
        found = await one.rig.store.read(JobsQuery(lane="automations", states=(State.SUCCEEDED,)))
        (job,) = found.rows
        assert json.loads(job.result or b"")["status"] == 0
        assert job.subject == str(repository)


@asynccontextmanager
async def dispatching(
    tmp_path: Path, url: str, entry: str
) -> AsyncIterator[tuple[Dispatcher, App]]:
    """Yield a dispatcher with its App, without a server or a worker."""
    (tmp_path / "automations.toml").write_text(entry)
    folders = Folders(root=tmp_path / "state")
    dispatcher = Dispatcher(file=tmp_path / "automations.toml", folders=folders, lease_ms=60_000)
    app = App(url)
    dispatcher.declare(app)
    dispatcher.read()
    await app.declare()
    try:
        yield dispatcher, app
    finally:
        await app.close_async()


async def test_interval_that_never_ran_is_due_at_once_beside_a_worker_that_creates_fires(
    tmp_path, repository, url
):
    async with dispatching(tmp_path, url, entry("each", repository)) as (dispatcher, app):
        define = app.store.define

        async def with_worker(request: DefineRequest) -> int:
            revision = await define(request)
            await TimetableChore(app.store, REAL).create_fires()
            return revision

        app.store.define = with_worker
        await dispatcher.sync(app.store)
        (view,) = await app.store.read(TimetableQuery())
        found = await app.store.read(JobsQuery(lane="automations"))
        first, after = sorted(job.fired_at or 0 for job in found.rows)
        assert first == view.first_seen_at < after == view.last_fired
        await dispatcher.sync(app.store)
        again = await app.store.read(JobsQuery(lane="automations"))
        assert [job.id for job in again.rows] == [job.id for job in found.rows]


@pytest.mark.parametrize("permanent", [True, False])
async def test_end_of_a_session_leaves_an_edit_made_meanwhile_in_force(
    tmp_path, repository, url, permanent
):
    gone = End(reason="setup", error="repository not found")
    before, after = entry("a", repository), entry("a", repository, schedule="at 09:00")
    async with dispatching(tmp_path, url, before) as (dispatcher, app):
        await dispatcher.sync(app.store)
        old = dispatcher.config.automations["a"]
        (tmp_path / "automations.toml").write_text(after)
        await dispatcher.sync(app.store)
        if permanent:
            await dispatcher._apply_end(app.store, old, gone)
        else:
            await dispatcher._apply_end(app.store, dispatcher.config.automations["a"], gone)
            await dispatcher._apply_end(app.store, old, End(reason="exit", status=0))
        (view,) = await app.store.read(TimetableQuery())
        assert format_schedule(view.spec.schedule) == "at 09:00"
        assert view.spec.enabled is permanent
        assert list(dispatcher.failed_permanently([view])) == ([] if permanent else ["a"])


class Servers:
    """Two servers of one store and one file; the test does the steps of the second itself."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.file = tmp_path / "automations.toml"
        self.first, self.second = (self._dispatcher(tmp_path) for _ in range(2))
        self.define = self.store.define

    def _dispatcher(self, folder: Path) -> Dispatcher:
        made = Dispatcher(file=self.file, folders=Folders(root=folder / "state"), lease_ms=60_000)
        made.declare(App(store=self.store))
        return made

    def before_the_next_define(self, change: Callable[[], None] = lambda: None) -> None:
        """Have the second server apply the changed file just before the first one defines."""

        async def late(request: DefineRequest) -> int:
            self.store.define = self.define
            change()
            await self.second.sync(self.store)
            return await self.define(request)

        self.store.define = late

    def write(self, *entries: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text("\n".join(entries))
        new.rename(self.file)

    async def entries(self) -> dict[str, EntryView]:
        return {one.spec.name: one for one in await self.store.read(TimetableQuery())}


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    made = Servers(tmp_path)
    yield made
    await made.store.close()


async def test_new_interval_is_due_at_once_if_two_servers_start_at_once(servers, repository):
    servers.write(entry("each", repository))
    servers.before_the_next_define(lambda: servers.clock.advance(5_000))
    await servers.first.sync(servers.store)
    view = (await servers.entries())["automation:each"]
    found = await servers.store.read(JobsQuery(lane="automations"))
    first, after = sorted(job.fired_at or 0 for job in found.rows)
    assert first == view.first_seen_at < after == view.last_fired
    assert view.revision == 1


async def test_server_that_read_an_older_file_does_not_replace_what_another_applied(
    servers, repository
):
    servers.write(entry("a", repository), entry("b", repository))
    servers.before_the_next_define(
        lambda: servers.write(entry("a", repository, schedule="1h"), entry("c", repository))
    )
    await servers.first.sync(servers.store)
    entries = await servers.entries()
    assert entries.keys() == {"automation:a", "automation:c"}
    assert format_schedule(entries["automation:a"].spec.schedule).startswith("every 1h")


async def test_file_is_applied_though_something_else_was_defined_meanwhile(servers, repository):
    async def late(request: DefineRequest) -> int:
        servers.store.define = servers.define
        lines = DeclareGate(spec=Slots("lines", 2))
        await servers.define(DefineRequest(items=(lines,), author="another"))
        return await servers.define(request)

    servers.write(entry("a", repository))
    servers.store.define = late
    await servers.first.sync(servers.store)
    assert (await servers.entries()).keys() == {"automation:a"}


@pytest.mark.parametrize(
    "end", [End(reason="setup", error="repository not found"), End(reason="exit", status=0)]
)
async def test_end_of_a_session_leaves_an_edit_in_force_that_is_applied_at_the_same_time(
    servers, repository, end
):
    """A worker runs it, which does not watch the file."""
    servers.write(entry("a", repository, ref="gone"))
    await servers.second.sync(servers.store)
    servers.first.read()
    old = servers.first.config.automations["a"]
    if end.succeeded:
        failed = End(reason="setup", error="repository not found")
        await servers.second._apply_end(servers.store, old, failed)
        assert not (await servers.entries())["automation:a"].spec.enabled
    servers.before_the_next_define(
        lambda: servers.write(entry("a", repository, schedule="1h", enabled=not end.succeeded))
    )
    await servers.first._apply_end(servers.store, old, end)
    edited = await servers.entries()
    await servers.second.sync(servers.store)
    assert edited["automation:a"].spec.enabled is not end.succeeded
    assert edited == await servers.entries()


async def test_disabled_dispatcher_keeps_its_entries_but_none_fires(servers, repository):
    servers.write(entry("a", repository))
    await servers.first.sync(servers.store)
    enabled = (await servers.entries())["automation:a"].spec
    servers.write("[dispatcher]\nenabled = false", entry("a", repository), entry("b", repository))
    await servers.first.sync(servers.store)
    entries = await servers.entries()
    assert {name: one.spec for name, one in entries.items()} == {
        "automation:a": replace(enabled, enabled=False)
    }
    servers.write(entry("a", repository))
    await servers.first.sync(servers.store)
    assert (await servers.entries())["automation:a"].spec == enabled


async def test_edit_of_an_entry_that_failed_permanently_enables_it_again(servers, repository):
    servers.write(entry("a", repository, ref="gone"))
    await servers.first.sync(servers.store)
    failed = End(reason="setup", error="repository not found")
    await servers.first._apply_end(servers.store, servers.first.find("a"), failed)
    assert not (await servers.entries())["automation:a"].spec.enabled
    servers.write(entry("a", repository, ref="main"))
    await servers.first.sync(servers.store)
    assert (await servers.entries())["automation:a"].spec.enabled


async def test_edit_that_a_session_reads_while_an_earlier_one_is_applied_is_still_to_apply(
    servers, repository
):
    servers.write(entry("a", repository))
    enqueue = servers.store.enqueue

    async def edited_meanwhile(jobs: Any) -> Any:
        servers.write(entry("a", repository, schedule="1h"))
        servers.first.read()
        return await enqueue(jobs)

    servers.store.enqueue = edited_meanwhile
    await servers.first.sync(servers.store)
    # The loop that watches the file compares the two.
    assert servers.first.applied == servers.first.revision - 1


async def test_first_session_of_an_interval_is_created_though_the_store_failed_before(
    servers, repository
):
    servers.write(entry("a", repository))
    enqueue = servers.store.enqueue

    async def refused(jobs: Any) -> Any:
        message = "the store does not reply"
        raise StoreUnavailable(message)

    servers.store.enqueue = refused
    with pytest.raises(StoreUnavailable):
        await servers.first.sync(servers.store)
    servers.store.enqueue = enqueue
    await servers.first.sync(servers.store)
    view = (await servers.entries())["automation:a"]
    found = await servers.store.read(JobsQuery(lane="automations"))
    assert min(job.fired_at or 0 for job in found.rows) == view.first_seen_at


async def test_file_that_could_not_be_read_is_read_again_though_it_has_not_changed(
    servers, repository, monkeypatch
):
    servers.write(entry("a", repository))

    def refused(path: Path) -> Any:
        message = f"{path} cannot be read: Permission denied"
        raise InvalidValue(message)

    with monkeypatch.context() as patched:
        patched.setattr(dispatcher_module, "read_config", refused)
        servers.first.read()
    assert servers.first.was_never_read
    servers.first.read()
    assert (servers.first.unreadable, [*servers.first.config.automations]) == (None, ["a"])


async def test_two_entries_of_one_repository_run_one_after_the_other(tmp_path, repository, url):
    entries = [entry(name, repository, holding(tmp_path)) for name in ("a", "b")]
    async with service(tmp_path, url, *entries) as one:
        await one.until(lambda: _async(len(pids(tmp_path)) == 1))

        async def waits() -> bool:
            rows = (await one.get())["automations"]
            return sorted(row["status"] or "" for row in rows) == ["locked", "running"]

        await one.until(waits)
        (lock,) = (await one.get("/locks"))["locks"]
        assert lock["repo_url"] == str(repository)
        assert set(lock) >= {
            "repo_url", "automation_id", "session_id", "acquired_at", "pid", "hostname"
        }  # fmt: skip
        assert lock["session_id"].startswith(f"cron:{lock['automation_id']}:")
        assert len(pids(tmp_path)) == 1
        metrics = await one.get("/dispatcher/metrics")
        assert metrics["lockedRepositories"] == [str(repository)]
        assert metrics["lastDispatchResult"]["skipped"]["locked"] == 1
        (tmp_path / "go").touch()
        await one.ended("a")
        await one.ended("b")
        assert (await one.get("/locks"))["locks"] == []


async def test_progress_by_another_caller_hides_no_lock(tmp_path, repository, url):
    async with service(tmp_path, url, entry("a", repository, holding(tmp_path))) as one:

        async def starts() -> Any:
            return [lock for lock in (await one.get("/locks"))["locks"] if lock["pid"]]

        (lock,) = await one.until(starts)
        body = {"event": "1", "progress": True, "body": "elsewhere"}
        job = await one.app.find_async(lock["job"])
        assert job
        reply = await one.rig.http.post(f"/v1/signals/{job.id}:{job.runs[-1].run}", json=body)
        assert reply.json()["answer"] == "applied"
        (found,) = (await one.get("/locks"))["locks"]
        assert found == lock | {"pid": None, "hostname": None}
        (tmp_path / "go").touch()
        await one.ended("a")


async def test_limit_applies_and_can_be_changed_at_run_time(tmp_path, url):
    repositories = [new_repository(tmp_path / f"r{number}") for number in range(3)]
    entries = [
        entry(f"e{number}", where, holding(tmp_path)) for number, where in enumerate(repositories)
    ]
    head = "[dispatcher]\nmax_concurrent = 1"
    async with service(tmp_path, url, *entries, head=head) as one:
        await one.until(lambda: _async(len(pids(tmp_path)) == 1))
        assert await one.get("/concurrency") == {"used": 1, "max": 1}
        reply = await one.rig.http.put(f"{API}/concurrency", json={"max": 2})
        assert reply.json()["max"] == 2
        await one.until(lambda: _async(len(pids(tmp_path)) == 2))
        result = await one.post("/dispatch")
        assert result["skipped"]["concurrencyLimit"] == 1
        assert len(pids(tmp_path)) == 2
        (tmp_path / "go").touch()
        for number in range(3):
            await one.ended(f"e{number}")


async def test_edit_applies_and_an_invalid_entry_disables_only_itself(tmp_path, repository):
    url = f"sqlite:///{tmp_path}/h.db"
    good = entry("good", repository, schedule="at 09:00")
    async with service(tmp_path, url, good) as one:
        one.write(good, entry("new", repository, "echo new"))
        await one.ended("new")
        one.write(good, entry("new", repository, schedule="moonrise"))

        async def degraded() -> Any:
            told = await one.get("/dispatcher/health")
            return told if told["status"] == "degraded" else None

        await one.until(degraded)
        rows = (await one.get())["automations"]
        assert [row["id"] for row in rows] == ["good"]
        error = (await one.post("/dispatch"))["errors"]
        assert error[0]["automationId"] == "new"
        assert error[0]["error"].startswith(f"{one.file}:")
        known = {view.spec.name: view for view in await one.rig.store.read(TimetableQuery())}
        assert not known["automation:new"].spec.enabled
        assert known["automation:good"].spec.enabled
        one.write(good)

        async def healthy() -> bool:
            return (await one.get("/dispatcher/health"))["status"] == "healthy"

        await one.until(healthy)


async def test_edited_schedule_does_not_fire_for_what_it_never_missed(tmp_path, repository):
    url = f"sqlite:///{tmp_path}/h.db"
    async with service(tmp_path, url, entry("a", repository, schedule="at 09:00")) as one:
        one.write(entry("a", repository, schedule="* * * * *", window="00:00-00:01"))

        async def applied() -> bool:
            return (await one.row("a"))["schedule"] == "cron: * * * * *"

        await one.until(applied)
        (view,) = await one.rig.store.read(TimetableQuery())
        assert view.last_fired is None or view.last_fired > view.first_seen_at


async def test_entry_removed_by_another_server_does_not_block_an_edit(
    tmp_path, repository, monkeypatch
):
    url = f"sqlite:///{tmp_path}/h.db"
    good, old = (entry(name, repository, schedule="at 09:00") for name in ("good", "old"))
    async with service(tmp_path, url, good, old) as one:
        store = one.rig.store
        define = store.define

        async def beaten(request: DefineRequest) -> int:
            monkeypatch.setattr(store, "define", define)
            await define(request)
            return await define(request)

        monkeypatch.setattr(store, "define", beaten)
        one.write(good)

        async def removed() -> bool:
            return [view.spec.name for view in await store.read(TimetableQuery())] == [
                "automation:good"
            ]

        await one.until(removed)
        one.write(good, entry("new", repository))
        await one.ended("new")


async def test_edit_made_while_an_earlier_one_is_applied_is_not_overwritten(
    tmp_path, repository, monkeypatch
):
    url = f"sqlite:///{tmp_path}/h.db"
    async with service(tmp_path, url, entry("a", repository, schedule="1h")) as one:
        store = one.rig.store
        read, define = store.read, store.define
        declared: list[str] = []

        async def stopped_meanwhile(query: Any) -> Any:
            known = await read(query)
            if isinstance(query, TimetableQuery):
                monkeypatch.setattr(store, "read", read)
                one.write(entry("a", repository, schedule="3h"))
            return known

        async def noted(request: DefineRequest) -> int:
            declared.extend(
                format_schedule(item.spec.schedule)
                for item in request.items
                if isinstance(item, DeclareEntry)
            )
            return await define(request)

        async def applied() -> bool:
            (view,) = await read(TimetableQuery())
            return format_schedule(view.spec.schedule) == "every 3h"

        monkeypatch.setattr(store, "define", noted)
        monkeypatch.setattr(store, "read", stopped_meanwhile)
        one.write(entry("a", repository, schedule="2h"))
        await one.until(applied)
        assert declared == ["every 3h"]


async def test_edit_to_a_shorter_interval_fires_by_it(tmp_path, repository):
    url = f"sqlite:///{tmp_path}/h.db"
    async with service(tmp_path, url, entry("a", repository, schedule="9h")) as one:
        await one.ended("a")
        one.write(entry("a", repository, schedule="1s"))

        async def spawned() -> bool:
            return (await one.get("/dispatcher/metrics"))["totalAutomationsSpawned"] >= 2

        await one.until(spawned)


@pytest.mark.slow
async def test_newest_session_is_not_one_folded_or_dropped_by_an_edit(tmp_path, repository):
    url = f"sqlite:///{tmp_path}/h.db"
    given = entry("a", repository, holding(tmp_path), schedule="19m")
    async with service(tmp_path, url, given) as one:
        await one.until(lambda: _async(len(pids(tmp_path)) == 1))
        store, session = one.rig.store, (await one.row("a"))["session_id"]
        laid = await store.read(JobsQuery(lane="automations", states=(State.SCHEDULED,)))
        ahead = laid.rows[0]
        # The next fire is due soon, while the session runs. A fire that was due before the edit
        # would wait for the lock, so it is due late enough that the edit certainly comes first.
        soon = (await store.read(StatsQuery())).now + 10_000
        await store.act(
            ActRequest(
                request="due", ids=(ahead.id,), verb=Verb.EDIT, edit=Edit(due_at=soon), author="me"
            )
        )

        async def folded() -> bool:
            return (await one.row("a"))["folded"] == 1

        await one.until(folded)
        row = await one.row("a")
        assert (row["status"], row["reason"], row["session_id"]) == ("running", "", session)
        (tmp_path / "go").touch()
        await one.ended("a")
        one.write(entry("a", repository, schedule="5h"))

        async def applied() -> bool:
            return (await one.row("a"))["schedule"] == "every 5h"

        await one.until(applied)
        row = await one.row("a")
        assert (row["status"], row["session_id"], row["folded"]) == ("succeeded", session, 1)


async def test_edit_waits_for_a_store_that_refuses_it(tmp_path, repository, monkeypatch):
    url = f"sqlite:///{tmp_path}/h.db"
    async with service(tmp_path, url, entry("a", repository, schedule="at 09:00")) as one:
        store = one.rig.store
        define, refused = store.define, list[DefineRequest]()

        async def busy(request: DefineRequest) -> int:
            refused.append(request)
            if len(refused) == 3:
                monkeypatch.setattr(store, "define", define)
            message = "the turn did not come in time"
            raise StoreUnavailable(message)

        monkeypatch.setattr(store, "define", busy)
        one.write(entry("new", repository))
        await one.ended("new")
        assert len(refused) == 3


async def test_edit_first_read_by_a_session_is_still_applied(tmp_path, repository):
    url = f"sqlite:///{tmp_path}/h.db"
    good = entry("good", repository, schedule="at 09:00")
    async with service(tmp_path, url, good) as one:
        await one.row("good")
        one.write(good, entry("new", repository))
        one.rig.service.system_services["automations"].read()  # pyright: ignore[reportAttributeAccessIssue]
        await one.ended("new")


async def anchors(one: Service) -> dict[str, Any]:
    found = await one.rig.store.read(TimetableQuery())
    return {view.spec.name: (view.spec.schedule, view.spec.enabled) for view in found}


async def test_interval_with_a_syntax_error_continues_where_it_was(tmp_path, repository):
    url, good = f"sqlite:///{tmp_path}/h.db", entry("good", repository, schedule="at 09:00")
    async with service(tmp_path, url, entry("a", repository), good) as one:
        await one.ended("a")
        before = await anchors(one)
        one.write(entry("a", repository).replace("'true'", "'true"), good)

        async def stands(enabled: bool) -> bool:
            return (await anchors(one)).get("automation:a", (None, None))[1] is enabled

        await one.until(lambda: stands(False))
        one.write(entry("a", repository), good)
        await one.until(lambda: stands(True))
        assert await anchors(one) == before


async def test_start_with_an_unreadable_file_removes_no_entry_and_ends_no_session(
    tmp_path, repository
):
    url, given = f"sqlite:///{tmp_path}/h.db", entry("a", repository)
    async with service(tmp_path, url, given) as one:
        await one.ended("a")
        before = await anchors(one)
    async with service(tmp_path, url, missing=True) as one:
        assert (await one.get("/dispatcher/health"))["status"] == "degraded"
        assert await anchors(one) == before
        store, id_ = one.rig.store, str(uuid4())
        (view,) = await store.read(TimetableQuery())
        await store.enqueue([view.spec.job.changed(id=id_)])

        async def job() -> JobView:
            found = await store.read(JobQuery(id=id_))
            assert found is not None
            return found

        async def waits() -> bool:
            return (await job()).reason == "automations.toml cannot be read"

        async def succeeded() -> bool:
            return (await job()).state is State.SUCCEEDED

        await one.until(waits)
        one.write(given)
        await one.until(lambda: one.row("a"))
        edit = Edit(due_at=0)
        await store.act(
            ActRequest(request="due", ids=(id_,), verb=Verb.EDIT, edit=edit, author="me")
        )
        await one.until(succeeded)
        assert await anchors(one) == before


@pytest.mark.parametrize(
    "unreadable", [lambda file: file.unlink(), lambda file: file.write_text("")]
)
async def test_file_that_is_missing_or_empty_changes_nothing_that_runs(
    tmp_path, repository, unreadable
):
    url = f"sqlite:///{tmp_path}/h.db"
    async with service(tmp_path, url, entry("a", repository)) as one:
        await one.ended("a")
        before = await anchors(one)
        # A shell empties the file before the program whose output it gets has written anything.
        unreadable(one.file)

        async def degraded() -> bool:
            return (await one.get("/dispatcher/health"))["status"] == "degraded"

        await one.until(degraded)
        assert (await one.row("a"))["enabled"]
        assert await anchors(one) == before


@pytest.mark.slow
async def test_release_ends_the_session_and_then_the_lock(tmp_path, repository, url):
    async with service(tmp_path, url, entry("a", repository, holding(tmp_path)), lease="3s") as one:
        await one.until(lambda: _async(len(pids(tmp_path)) == 1))
        (pid,) = pids(tmp_path)
        reply = await one.rig.http.delete(f"{API}/locks/{quote(str(repository), safe='')}")
        assert reply.status_code == 200, reply.text
        await one.ended("a", "cancelled")
        assert not lives(pid)
        assert (await one.get("/locks"))["locks"] == []
        again = await one.rig.http.delete(f"{API}/locks/{quote(str(repository), safe='')}")
        assert again.status_code == 404


class EndingFirst(StoreProxy):
    """A store in which the session fails just before an action, and waits for its retry."""

    async def act(self, request: ActRequest) -> list[ActReply]:
        (id_,) = request.ids
        await self.settle(SettleRequest(worker="w" * 32, outcomes=(Failed(id_, 1),)))
        return await super().act(request)


@pytest.mark.parametrize("force", [False, True])
async def test_release_of_a_session_that_has_just_ended_leaves_its_retry(force, tmp_path):
    store = EndingFirst(open_store("memory://"))
    args = b'{"automation": "one", "repository": "github.com/a/b"}'
    (sent,) = await store.enqueue([NewJob(id=str(uuid4()), kind=KIND, lane=LANE, args=args)])
    await store.claim(ClaimRequest(worker="w" * 32, request=1, lanes=((LANE, 1),)))
    dispatcher = cast("Dispatcher", SimpleNamespace(file=tmp_path / "automations.toml"))
    with pytest.raises(UnknownJob, match="just ended"):
        await release(store, dispatcher, "github.com/a/b", author="ann", force=force)
    job = await store.read(JobQuery(id=sent.id))
    assert job is not None
    assert job.state is State.SCHEDULED
    await store.close()


async def test_token_in_a_released_url_reaches_neither_log_nor_reply(
    tmp_path, repository, monkeypatch
):
    # Not the output: another test may have configured the logger of this process.
    logged = LogCapture()
    monkeypatch.setattr(middleware, "_access_log", structlog.wrap_logger(None, [logged]))
    url = f"sqlite:///{tmp_path}/h.db"
    async with service(tmp_path, url, entry("a", repository, schedule="at 09:00")) as one:
        where = quote("https://ada:T0KEN/T0KEN@example.org/ada/repo", safe="")
        reply = await one.rig.http.delete(f"{API}/locks/{where}")
        assert reply.status_code == 404
    (path,) = [one["path"] for one in logged.entries if one["method"] == "DELETE"]
    assert path.endswith("/locks/https://***@example.org/ada/repo")
    assert "T0KEN" not in f"{reply.text}{logged.entries}"


@pytest.mark.parametrize("force", [False, True])
async def test_released_session_is_logged_as_cancelled_and_not_as_failed(
    tmp_path, repository, caplog, force
):
    url, given = f"sqlite:///{tmp_path}/h.db", entry("a", repository, holding(tmp_path))
    async with service(tmp_path, url, given, lease="6s" if force else "60s") as one:
        await one.until(lambda: _async(len(pids(tmp_path)) == 1))
        where = f"{API}/locks/{quote(str(repository), safe='')}?force={str(force).lower()}"
        assert (await one.rig.http.delete(where)).status_code == 200
        if not force:
            beat_soon(one.worker)

        def ends() -> list[tuple[int, str]]:
            found = [(each.levelno, each.getMessage()) for each in caplog.records]
            return [each for each in found if "end=" in each[1]]

        await one.until(lambda: _async(ends()))
        ((level, text),) = ends()
        assert level == logging.WARNING
        assert text.startswith("session cancelled ")
        assert text.endswith(" end=cancelled")


async def test_released_and_retried_session_can_be_released_again(tmp_path, repository):
    url, given = f"sqlite:///{tmp_path}/h.db", entry("a", repository, holding(tmp_path))
    where = f"{API}/locks/{quote(str(repository), safe='')}"
    async with service(tmp_path, url, given, lease="3s") as one:
        await one.until(lambda: _async(len(pids(tmp_path)) == 1))
        first = pids(tmp_path)
        lock = (await one.rig.http.delete(where)).json()
        await one.ended("a", "cancelled")
        job = lock["session_id"].rpartition(":")[2]
        retry = ActRequest(request="retry", ids=(job,), verb=Verb.RETRY, author="ada", reason="")
        assert [reply.answer for reply in await one.app.store.act(retry)] == [Acted.DONE]
        await one.until(lambda: _async(pids(tmp_path) not in ([], first)))
        assert (await one.rig.http.delete(where)).status_code == 200
        await one.ended("a", "cancelled")


async def test_failed_session_is_retried_only_if_the_entry_says_so(tmp_path, repository, url):
    entries = (
        entry("never", repository, "echo x >> ../../../../never; exit 3"),
        entry("twice", repository, f"echo x >> {tmp_path}/tries; exit 3",
              retries=1, retry_after="10ms"),
    )  # fmt: skip
    async with service(tmp_path, url, *entries) as one:
        row = await one.ended("never", "failed")
        assert row["reason"] == "status 3"
        await one.ended("twice", "failed")
        assert (tmp_path / "tries").read_text() == "x\nx\n"
        assert (await one.get("/dispatcher/metrics"))["totalErrors"] == 3


@pytest.mark.parametrize(("retries", "state"), [(0, State.DEAD), (1, State.SCHEDULED)])
async def test_session_of_a_killed_service_is_retried_if_the_entry_says_so(
    servers, repository, retries, state
):
    servers.write(entry("a", repository, retries=retries))
    await servers.first.sync(servers.store)
    claim = ClaimRequest(worker="w", request=1, lanes=(("automations", 1),))
    (claimed,) = (await servers.store.claim(claim)).jobs
    handed = HandedOver(claimed.id, claimed.run, key="k", timeout_ms=60_000)
    await servers.store.settle(SettleRequest(worker="w", outcomes=(handed,)))
    servers.clock.advance(60_000)
    await servers.store.sweep(10)
    found = await servers.store.read(JobQuery(id=claimed.id))
    assert (found.state, found.reason) == (state, "deadline")


async def test_session_that_would_fail_again_is_not_retried(tmp_path):
    url = f"sqlite:///{tmp_path}/h.db"
    given = entry("a", tmp_path / "nothing", retries=3, retry_after="1h")
    async with service(tmp_path, url, given) as one:

        async def skipped() -> bool:
            return (await one.row("a"))["status"] == "skipped"

        await one.until(skipped)
        rows = (await one.rig.store.read(JobsQuery(lane="automations"))).rows
        assert [(job.state, job.attempt) for job in rows if job.run] == [(State.DEAD, 1)]


async def test_run_makes_a_session_due_now(tmp_path, repository, url):
    async with service(tmp_path, url, entry("a", repository, schedule="at 09:00")) as one:
        started = await one.post("/a/run")
        row = await one.ended("a")
        assert row["session_id"] == started["session_id"]
        unknown = await one.rig.http.post(f"{API}/b/run")
        assert unknown.status_code == 422


async def test_repeat_of_a_run_under_one_idempotency_key_starts_no_second_session(
    tmp_path, repository
):
    url = f"sqlite:///{tmp_path}/h.db"
    async with service(tmp_path, url, entry("a", repository, schedule="at 09:00")) as one:

        async def run(key: str) -> str:
            headers = {"Idempotency-Key": key}
            reply = await one.rig.http.post(f"{API}/a/run", headers=headers)
            assert reply.status_code == 200, reply.text
            return reply.json()["session_id"]

        first = await run("k")
        await one.ended("a")
        assert await run("k") == first
        assert await run("other") != first


async def test_two_sessions_due_at_once_are_one_dispatch(tmp_path, repository):
    url = f"sqlite:///{tmp_path}/h.db"
    other = new_repository(tmp_path / "other")
    async with service(tmp_path, url, entry("a", repository), entry("b", other)) as one:
        await one.ended("a")
        await one.ended("b")
        metrics = await one.get("/dispatcher/metrics")
        assert (metrics["totalDispatches"], metrics["totalAutomationsSpawned"]) == (1, 2)
        await one.post("/a/run")

        async def counted() -> list[int]:
            now = await one.get("/dispatcher/metrics")
            return now["totalAutomationsSpawned"] == 3 and [now["totalDispatches"]]

        assert await one.until(counted) == [2]


async def test_session_must_end_before_the_store_ends_its_lease(tmp_path, repository, monkeypatch):
    seen: list[tuple[float, float]] = []
    begun: list[float] = []
    work, hand_over = AutomationSession.run_to_end, Job.hand_over

    async def noted(
        self: AutomationSession,
        folders: Any,
        timing: Timing,
        until: float,
        renew: Any,
        every_s: float,
    ) -> Any:
        seen.append((until - begun[0], every_s))
        return await work(self, folders, timing, until, renew, every_s)

    async def handed_over(self: Job, **options: Any) -> None:
        begun.append(REAL.monotonic())
        await hand_over(self, **options)

    monkeypatch.setattr(AutomationSession, "run_to_end", noted)
    monkeypatch.setattr(Job, "hand_over", handed_over)
    url = f"sqlite:///{tmp_path}/h.db"
    async with service(tmp_path, url, entry("a", repository), lease="60s") as one:
        await one.ended("a")
    ((left_s, every_s),) = seen
    # Counted from before the request to the store; a sixth is reserved to end all processes.
    assert (left_s <= 50, every_s) == (True, 20)


async def test_end_of_a_session_is_reported_before_old_folders_are_removed(
    tmp_path, repository, monkeypatch
):
    removed = threading.Event()
    monkeypatch.setattr(session, "_prune", lambda *_: removed.wait())
    async with service(tmp_path, f"sqlite:///{tmp_path}/h.db", entry("a", repository)) as one:
        try:
            assert (await one.ended("a"))["status"] == "succeeded"
            assert (await one.get("/locks"))["locks"] == []
        finally:
            removed.set()


async def test_session_of_a_repository_no_longer_in_its_entry_is_not_run(tmp_path, repository):
    file = tmp_path / "automations.toml"
    file.write_text(entry("a", repository))
    one = Dispatcher(file=file, folders=Folders(root=tmp_path / "state"), lease_ms=60_000)
    job: Any = None
    with pytest.raises(Dead, match="its repository has changed"):
        await one.work(MemoryStore(), job, "a", "elsewhere")


async def test_lease_that_cannot_be_renewed_lasts_no_longer_than_known(tmp_path):
    away = FaultyStore(MemoryStore())
    away.plan(Fault.REFUSE)
    runner = SessionRunner(folders=Folders(root=tmp_path), lease_ms=60_000, timing=REAL)
    job: Any = SimpleNamespace(id="a", ref="a:1")
    known = [5.0]
    assert await runner._renew(away, job, known, {}) == 5.0
    assert known == [5.0]


async def test_recreated_mirror_counts_until_a_session_succeeds_in_that_repository(
    tmp_path, repository
):
    runner = SessionRunner(folders=Folders(root=tmp_path), lease_ms=60_000, timing=REAL)

    def ended(status: int, where: Path, *remade: str) -> set[str]:
        of = AutomationSession(
            id="cron:one:a", automation=automation(where, "true"), run=1, remade=[*remade]
        )
        runner.ended(of, End(reason="exit", status=status))
        return runner.remade

    assert ended(0, repository, "mirror") == {str(repository)}
    assert ended(3, repository) == {str(repository)}
    assert ended(0, tmp_path / "other") == {str(repository)}
    assert ended(0, repository) == set()
    assert runner.counts.remade == 1


@pytest.mark.parametrize(
    ("reason", "shown"), [("stopped", "cancelled"), ("timeout", "timeout"), ("exit", "status 0")]
)
async def test_cancelled_session_that_ended_by_itself_is_reported_as_it_ended(
    tmp_path, repository, monkeypatch, reason, shown
):
    async def ended(*_: object) -> End:
        return End(reason=reason, status=0)

    async def handed_over(**_: object) -> None:
        pass

    monkeypatch.setattr(AutomationSession, "run_to_end", ended)
    job: Any = SimpleNamespace(
        id=str(uuid4()),
        ref="a:1",
        run=1,
        stop="cancel",
        claimed=SimpleNamespace(due_at=0),
        hand_over=handed_over,
    )
    runner = SessionRunner(folders=Folders(root=tmp_path), lease_ms=60_000, timing=REAL)
    _, end = await runner.run(MemoryStore(), job, automation(repository, "true"), 60_000)
    assert str(end) == shown


async def test_health_and_metrics_have_their_documented_names(tmp_path, repository):
    url = f"sqlite:///{tmp_path}/h.db"
    off = entry("off", repository, enabled=False)
    async with service(tmp_path, url, entry("a", repository), off) as one:
        await one.ended("a")
        health = await one.get("/dispatcher/health")
        assert set(health) == {
            "status", "uptime", "lastDispatchTime", "activeLocks", "concurrencyUsage",
            "nextDispatchTime",
        }  # fmt: skip
        assert (health["status"], health["activeLocks"]) == ("healthy", 0)
        assert health["concurrencyUsage"] == {"used": 0, "max": 3}
        assert health["nextDispatchTime"] > health["lastDispatchTime"]
        metrics = await one.get("/dispatcher/metrics")
        assert set(metrics) == {
            "lastDispatchTime", "lastDispatchDuration", "lastDispatchResult", "totalDispatches",
            "totalAutomationsSpawned", "totalSkips", "totalErrors", "activeAutomations",
            "lockedRepositories", "availableConcurrencySlots",
        }  # fmt: skip
        assert metrics["totalAutomationsSpawned"] == metrics["totalDispatches"] == 1
        assert metrics["availableConcurrencySlots"] == 3
        assert metrics["lastDispatchResult"] == {
            "dispatched": 1,
            "skipped": {"notDue": 0, "locked": 0, "concurrencyLimit": 0, "disabled": 1},
            "errors": [],
        }
        scraped = (await one.rig.http.get("/metrics")).text
        assert "headway_automations_spawned_total 1.0" in scraped
        assert "headway_automations_slots 3.0" in scraped
        assert f"headway_automations_dispatches_total {metrics['totalDispatches']}.0" in scraped
        assert f"headway_automations_fires_folded {metrics['totalSkips']}.0" in scraped
        took = float(metrics["lastDispatchDuration"]) / 1000
        assert f"headway_automations_last_dispatch_duration_seconds {took}" in scraped
        skipped = metrics["lastDispatchResult"]["skipped"]
        results = {"dispatched": 1, "errors": 0, **skipped}
        for result, count in results.items():
            name = f'headway_automations_last_dispatch_result{{result="{result}"}}'
            assert f"{name} {count}.0" in scraped


async def test_fire_late_by_a_tick_degrades_the_health_and_by_three_ends_it(tmp_path, repository):
    clock = FakeClock()
    file = tmp_path / "automations.toml"
    file.write_text(entry("a", repository))
    dispatcher = Dispatcher(file=file, folders=Folders(root=tmp_path / "state"), lease_ms=60_000)
    app = App("memory://")
    app.use(MemoryStore(clock))
    dispatcher.declare(app)
    async with app:
        dispatcher.read()
        await dispatcher.sync(app.store)
        found: list[str] = []
        # No worker starts the session that is due now; the tick is half an hour.
        for minutes in (30, 1, 59, 1):
            clock.advance(minutes * 60_000)
            found.append((await health(app.store, dispatcher))["status"])
        assert found == ["healthy", "degraded", "degraded", "unhealthy"]


async def test_entry_keeps_its_newest_session_though_another_has_had_a_thousand_since(tmp_path):
    file = tmp_path / "automations.toml"
    file.write_text(entry("weekly", tmp_path / "one") + entry("busy", tmp_path / "two"))
    dispatcher = Dispatcher(file=file, folders=Folders(root=tmp_path / "state"), lease_ms=60_000)
    app = App("memory://")
    dispatcher.declare(app)
    dispatcher.read()
    async with app:
        weekly = await dispatcher.run_now(app.store, "weekly")
        busy = [dispatcher._job(dispatcher.find("busy")) for _ in range(1_000)]
        await app.store.enqueue(busy)
        rows = {row["id"]: row for row in await listing(app.store, dispatcher)}
        assert rows["weekly"]["session_id"] == f"cron:weekly:{weekly}"
        assert rows["busy"]["session_id"] == f"cron:busy:{busy[-1].id}"


async def test_listing_reads_the_old_sessions_of_a_repository_once(tmp_path, monkeypatch):
    file = tmp_path / "automations.toml"
    shared = [entry(f"weekly{n}", tmp_path / "one") for n in range(3)]
    file.write_text("".join([*shared, entry("busy", tmp_path / "two")]))
    dispatcher = Dispatcher(file=file, folders=Folders(root=tmp_path / "state"), lease_ms=60_000)
    app = App("memory://")
    dispatcher.declare(app)
    dispatcher.read()
    async with app:
        weekly = [await dispatcher.run_now(app.store, f"weekly{n}") for n in range(3)]
        busy = [dispatcher._job(dispatcher.find("busy")) for _ in range(1_000)]
        await app.store.enqueue(busy)
        read, queries = app.store.read, list[Any]()

        async def recorded(query: Any) -> Any:
            queries.append(query)
            return await read(query)

        monkeypatch.setattr(app.store, "read", recorded)
        rows = {row["id"]: row for row in await listing(app.store, dispatcher)}
        found = [rows[f"weekly{n}"]["session_id"] for n in range(3)]
        assert found == [f"cron:weekly{n}:{id_}" for n, id_ in enumerate(weekly)]
        assert len([one for one in queries if getattr(one, "subject", None)]) == 1
        queries.clear()
        with pytest.raises(UnknownJob, match="busy"):
            await session_of(app.store, dispatcher, "busy")
        assert [one for one in queries if getattr(one, "subject", None)] == []


async def test_end_of_a_session_is_counted_though_the_worker_stops_its_handler(
    tmp_path, repository, monkeypatch
):
    """The job has ended, so the next heartbeat stops the handler, whatever it waits for."""
    file = tmp_path / "automations.toml"
    file.write_text(entry("a", repository))
    one = Dispatcher(file=file, folders=Folders(root=tmp_path / "state"), lease_ms=60_000)
    one.read()
    of = session.AutomationSession(id="cron:a:b", automation=one.find("a"), run=1)

    async def run(*_: object) -> object:
        return of, End(reason="exit", status=3)

    async def stopped(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(one.runner, "run", run)
    monkeypatch.setattr(one, "_apply_end", stopped)
    job: Any = None
    with pytest.raises(asyncio.CancelledError):
        await one.work(MemoryStore(), job, "a", one.find("a").repository.key)
    assert one.runner.counts.errors == 1


def of_three(folder: Path) -> tuple[Dispatcher, App]:
    """Return a dispatcher of three automations, and the App in which it is declared."""
    file = folder / "automations.toml"
    file.write_text("".join(entry(name, folder / name) for name in "abc"))
    one = Dispatcher(file=file, folders=Folders(root=folder / "state"), lease_ms=60_000)
    app = App("memory://")
    one.declare(app)
    one.read()
    return one, app


async def test_first_sessions_of_new_intervals_are_created_together(tmp_path, monkeypatch):
    one, app = of_three(tmp_path)
    async with app:
        enqueue, sizes = app.store.enqueue, list[int]()

        async def recorded(jobs: Any) -> Any:
            sizes.append(len(jobs))
            return await enqueue(jobs)

        monkeypatch.setattr(app.store, "enqueue", recorded)
        await one.sync(app.store)
        assert sizes == [3]


async def test_end_of_a_session_reads_no_other_entry(tmp_path, monkeypatch):
    one, app = of_three(tmp_path)
    async with app:
        await one.sync(app.store)
        entries = app.store.read
        found: list[str] = []

        async def recorded(query: Any) -> Any:
            rows = await entries(query)
            if isinstance(query, TimetableQuery):
                found.extend(row.spec.name for row in rows)
            return rows

        monkeypatch.setattr(app.store, "read", recorded)
        await one._apply_end(app.store, one.find("b"), End(reason="exit", status=0))
        assert found == ["automation:b"]


async def test_stopping_worker_ends_its_sessions(tmp_path, repository, url):
    async with service(tmp_path, url, entry("a", repository, holding(tmp_path))) as one:
        await one.until(lambda: _async(len(pids(tmp_path)) == 1))
        (pid,) = pids(tmp_path)
        one.worker.stop()
        row = await one.ended("a", "failed")
        assert row["reason"] == "stopped"
        assert not lives(pid)


async def _async(value: bool) -> bool:
    return value
