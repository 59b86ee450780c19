"""Rows that Headway adopts and gives back: what happens to their jobs, and who may choose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from sqlalchemy import insert

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import Role
from headway.contract.operate import ActReply, ActRequest
from headway.contract.views import JobQuery
from headway.core.errors import InvalidValue
from headway.core.job import NewJob
from headway.core.state import State
from headway.runtime.settings_table import read_table
from headway.runtime.timing import Timing
from headway.stores import open_store
from headway.systems.calls.intake import LeadRecipe
from headway.systems.calls.source_table.lead_table import LeadTable
from headway.systems.calls.source_table.migration import MIGRATION, Migration
from headway.systems.calls.source_table.row_sync import RowSync, _in_flight
from headway.systems.calls.source_table.settings import (
    LeadRow,
    MigrationMode,
    MigrationPlan,
    MigrationSettings,
    Recipe,
    RowState,
    lead_of,
)
from headway.testing.faulty import StoreProxy
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database, until_it_waits
from tests.systems.calls.calls_rig import NUMBER, PHONE
from tests.systems.calls.calls_rig import calling as on_own_table
from tests.systems.calls.source_table.databases import make_theirs, opened, run, settings_of
from tests.systems.calls.source_table.site import Site, calling, lead
from tests.systems.telephony.carrier_rig import carrying

LATER = "2099-01-01 12:00:00"
NOW = "2026-01-01 12:00:00"


@asynccontextmanager
async def sited(folder: Path, due: str, count: int = 3, **more: Any) -> AsyncIterator[Site]:
    """Run a site on a table with rows of the older system."""
    url = f"sqlite:///{folder}/theirs.db"
    await make_theirs(url)
    for n in range(count):
        await run(
            url,
            "INSERT INTO their_leads (msisdn, zone, partner, call_after, state, handled_by)"
            " VALUES (:phone, 'America/Denver', :partner, :due, 'new', 'legacy')",
            phone=f"+1555010{n:04}",
            partner="acme" if n % 2 else "bolt",
            due=due,
        )
    async with (
        carrying(speed=1_000, ring="1s", talk="1s", numbers=["+15550001001"]) as carrier,
        calling(
            carrier,
            f"sqlite:///{folder}/jobs.db",
            f"sqlite:///{folder}/directory.db",
            table=settings_of(url, every="1s"),
            **{"numbers": {"+15550001001": 2}, **more},
        ) as site,
    ):
        yield site


async def rows(folder: Path) -> list[tuple[str | None, str, str | None]]:
    found = await run(
        f"sqlite:///{folder}/theirs.db",
        "SELECT handled_by, state, result FROM their_leads ORDER BY lead_no",
    )
    return [(one["handled_by"], one["state"], one["result"]) for one in found]


async def choose(site: Site, mode: str, **more: Any) -> dict[str, Any]:
    body = {"mode": mode, **more}
    reply = await site.rig.call(Role.OPERATOR, "PUT", "/calls/migration", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def states(site: Site) -> list[State]:
    return [job.state for job in await site.jobs()]


def test_growing_percentage_adds_rows_and_removes_none() -> None:
    all_rows = [
        LeadRow(id=str(n), phone="+1", tz="UTC", reseller="a", due_at=0) for n in range(4_000)
    ]
    before: set[str] = set()
    for percent in (0.0, 0.5, 10.0, 30.0, 99.9, 100.0):
        chosen = MigrationPlan(mode=MigrationMode.ADOPT, percent=percent)
        now = {row.id for row in all_rows if chosen.has(row)}
        assert before <= now
        assert abs(len(now) / 40 - percent) < 3
        before = now
    assert len(before) == 4_000
    of_one = MigrationPlan(mode=MigrationMode.ADOPT, percent=100.0, resellers=("b",))
    assert not any(of_one.has(row) for row in all_rows)
    assert not MigrationPlan(mode=MigrationMode.RELEASE, percent=100.0).has(all_rows[0])


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"mode": "adapt"}, "mode is 'adapt'"),
        ({"percent": 101}, "percent is 101"),
        ({"percent": True}, "percent is True"),
        ({"resellers": "acme"}, "resellers is 'acme'"),
        ({"procent": 1}, "did you mean percent"),
        ({"batch": 0}, "batch is 0"),
    ],
)
def test_invalid_migration_is_refused(written: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        read_table("calls.migration", MigrationSettings, written)


async def test_returned_rows_leave_no_job_and_are_called_again_once_they_come_back(
    tmp_path: Path,
) -> None:
    async with sited(tmp_path, LATER) as site:
        told = await choose(site, "adopt", percent=100)
        assert told["rows"]["theirs_pending"] == 3

        async def ours() -> bool:
            return await states(site) == [State.SCHEDULED] * 3

        await site.until(ours, "adopted")
        assert await rows(tmp_path) == [("headway", "new", None)] * 3
        await choose(site, "release")

        async def theirs() -> bool:
            return await states(site) == [State.CANCELLED] * 3

        await site.until(theirs, "released")
        assert all(job.reason.startswith("RELEASED") for job in await site.jobs())
        assert await rows(tmp_path) == [("legacy", "new", None)] * 3
        await choose(site, "adopt", resellers=["acme"])

        async def one_again() -> bool:
            found = sorted((job.tenant, job.state) for job in await site.jobs())
            return ("acme", State.SCHEDULED) in found and len(found) == 3

        await site.until(one_again, "one is ours again")
        assert await rows(tmp_path) == [
            ("legacy", "new", None),
            ("headway", "new", None),
            ("legacy", "new", None),
        ]
        assert site.called() == []


@pytest.mark.parametrize("when", ["before its job was read", "just before the retry"])
async def test_job_is_not_retried_for_a_row_that_was_returned_after_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    theirs = settings_of(f"sqlite:///{tmp_path}/theirs.db")
    async with sited(tmp_path, LATER) as site, opened(theirs) as table:
        await choose(site, "adopt", percent=100)

        async def ours() -> bool:
            return await states(site) == [State.SCHEDULED] * 3

        await site.until(ours, "adopted")
        (read_before,) = [page async for page in table.pending(ours=True)]
        stored = {job.id: job for job in await site.jobs()}

        def make(row: LeadRow) -> NewJob:
            job = stored[row.lead]
            fields = {name: getattr(job, name) for name in ("id", "kind", "lane", "stage", "args")}
            return NewJob(**fields, due_at=job.due_at)

        await choose(site, "release")

        async def released() -> bool:
            return await states(site) == [State.CANCELLED] * 3

        await site.until(released, "released")
        recipe = cast("Recipe", SimpleNamespace(job=make))
        sync = RowSync(lambda: site.app.store, table, recipe)
        if when == "just before the retry":

            async def still_ours(_: Sequence[str]) -> dict[str, LeadRow]:
                return {row.id: row for row in read_before}

            monkeypatch.setattr(table, "find_pending", still_ours)
        assert await sync.missing(read_before) == []
        assert await states(site) == [State.CANCELLED] * 3


class ClaimingFirst(StoreProxy):
    """A store in which a worker claims just before an action."""

    async def act(self, request: ActRequest) -> list[ActReply]:
        await self.claim(ClaimRequest(worker="w" * 32, request=1, lanes=(("leads", 1),)))
        return await super().act(request)


async def test_job_that_is_claimed_while_its_row_is_returned_is_not_asked_to_stop() -> None:
    store = ClaimingFirst(open_store("memory://"))
    row = LeadRow(phone=PHONE, tz="UTC", reseller="acme", due_at=0)
    rows = [row.named(str(uuid4())) for _ in range(2)]
    jobs = [NewJob(id=one.lead, kind="lead", lane="leads") for one in rows]
    await store.enqueue(jobs)
    sync = RowSync(lambda: store, cast("LeadTable", None), cast("Recipe", None))
    await sync.cancel(rows)
    views = [await store.read(JobQuery(id=one.lead)) for one in rows]
    found = [(one.state, one.cancel_requested) for one in views if one is not None]
    # The first one finds out from its row just before its call.
    assert found == [(State.RUNNING, False), (State.CANCELLED, False)]
    await store.close()


async def test_job_of_another_lane_with_the_id_of_a_rows_lead_gets_none_of_its_arguments(
    tmp_path: Path,
) -> None:
    async with sited(tmp_path, LATER, count=2) as site:
        token = await site.rig.token(Role.PRODUCER, lanes=["mine"])
        guessed = await site.rig.send(token, lane="mine", id=lead_of("1"), args={"of": "mine"})
        await choose(site, "adopt", percent=100)

        async def ours() -> bool:
            return await states(site) == [State.SCHEDULED]

        await site.until(ours, "the other row's job")
        view = await site.app.store.read(JobQuery(id=guessed))
        assert view is not None
        assert (view.lane, view.args) == ("mine", b'{"of":"mine"}')


async def test_row_that_is_no_lead_stays_with_the_older_system(tmp_path: Path) -> None:
    async with sited(tmp_path, LATER) as site:
        await run(
            f"sqlite:///{tmp_path}/theirs.db",
            "UPDATE their_leads SET zone = 'Mars/Olympus' WHERE lead_no = 2",
        )
        await choose(site, "adopt", percent=100)

        async def ours() -> bool:
            return len(await site.jobs()) == 2

        await site.until(ours, "adopted")
        assert [owner for owner, _, _ in await rows(tmp_path)] == ["headway", "legacy", "headway"]


async def test_row_changed_while_it_waits_is_called_with_its_new_values(
    tmp_path: Path,
) -> None:
    async with sited(tmp_path, LATER, count=1) as site:
        await choose(site, "adopt", percent=100)

        async def ours() -> bool:
            return await states(site) == [State.SCHEDULED]

        await site.until(ours, "adopted")
        await run(
            f"sqlite:///{tmp_path}/theirs.db", "UPDATE their_leads SET msisdn = '+15550109999'"
        )

        async def changed() -> bool:
            (job,) = await site.jobs()
            return b'"+15550109999"' in job.args

        await site.until(changed, "the job follows its row")


async def test_look_that_read_a_row_before_its_change_does_not_undo_that(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/theirs.db"
    async with sited(tmp_path, LATER, count=1) as site, opened(settings_of(url)) as table:
        await choose(site, "adopt", percent=100)

        async def has(phone: bytes) -> bool:
            return [phone in job.args for job in await site.jobs()] == [True]

        await site.until(lambda: has(b"+15550100000"), "adopted")
        (read_before,) = [page async for page in table.pending(ours=True)]
        await run(url, "UPDATE their_leads SET msisdn = '+15550109999'")
        await site.until(lambda: has(b"+15550109999"), "changed by another look")
        (stored,) = await site.jobs()

        def make(row: LeadRow) -> NewJob:
            fields = {name: getattr(stored, name) for name in ("id", "kind", "lane", "stage")}
            args = stored.args.replace(b"+15550109999", row.phone.encode())
            return NewJob(**fields, args=args, due_at=stored.due_at)

        recipe = cast("Recipe", SimpleNamespace(job=make))
        await RowSync(lambda: site.app.store, table, recipe).missing(read_before)
        now = await site.app.store.read(JobQuery(id=stored.id))
        assert now is not None
        assert now.args == stored.args
        assert [note.what for note in now.trail] == ["edit done"]


async def test_row_taken_away_while_its_lead_waited_is_not_called(
    tmp_path: Path,
) -> None:
    async with sited(tmp_path, NOW, count=1, numbers={}) as site:
        await choose(site, "adopt", percent=100)

        async def waits() -> bool:
            return [job.stage for job in await site.jobs(State.WAITING)] == ["dial"]

        await site.until(waits, "it waits for a number")
        await choose(site, "off")
        await run(f"sqlite:///{tmp_path}/theirs.db", "UPDATE their_leads SET handled_by = 'legacy'")
        number = {"number": "+15550001001", "provider": "twilio", "maximum_channels": 1}
        assert (await site.rig.call(Role.ADMIN, "POST", "/numbers", number)).status_code == 201

        async def over() -> bool:
            return await states(site) == [State.DEAD]

        await site.until(over, "it ended")
        (job,) = await site.jobs()
        assert job.reason == "NOT_OURS: the row 1 is new and belongs to the older system"
        assert site.called() == []
        assert await rows(tmp_path) == [("legacy", "new", None)]


async def test_lead_waiting_for_its_table_uses_up_none_of_its_customers_calls(
    tmp_path: Path,
) -> None:
    async with sited(tmp_path, NOW, count=1, numbers={}, customer_limit=2) as site:
        await choose(site, "adopt", percent=100)

        async def waits() -> bool:
            return [job.stage for job in await site.jobs(State.WAITING)] == ["dial"]

        await site.until(waits, "it waits for a number")
        context: Any = site.rig.service.system_services["calls"]
        await context.table.table.database.close()
        number = {"number": "+15550001001", "provider": "twilio", "maximum_channels": 1}
        assert (await site.rig.call(Role.ADMIN, "POST", "/numbers", number)).status_code == 201
        for runs in (2, 3):

            async def is_postponed(least: int = runs) -> bool:
                return [len(job.runs) >= least for job in await site.jobs(State.SCHEDULED)] == [
                    True
                ]

            await site.until(is_postponed, "it waits for the table")
            (job,) = await site.jobs()
            if runs == 3:
                await context.table.table.database.open()
            reply = await site.rig.call(Role.ADMIN, "POST", f"/leads/{job.id}/dispatch-now")
            assert reply.status_code == 200, reply.text

        async def over() -> bool:
            return await states(site) == [State.SUCCEEDED]

        await site.until(over, "it ended")
        shown = await site.rig.ask(Role.ADMIN, f"/leads/{job.id}")
        assert [one["outcome"] for one in shown["attempts"]] == ["COMPLETED"]


async def test_lead_called_again_returns_to_pending_between_its_calls(
    tmp_path: Path,
) -> None:
    template = {"retry_offset": "1s"}
    async with sited(tmp_path, NOW, count=1, template=template) as site:
        site.carrier.person("+15550100000", "busy", "talks")
        await choose(site, "adopt", percent=100)
        seen: set[str] = set()

        async def done() -> bool:
            ((_, state, result),) = await rows(tmp_path)
            if len(site.called()) == 1 and state == "new":
                seen.add("between")
            return (state, result) == ("closed", "COMPLETED")

        await site.until(done, "called twice")
        assert len(site.called()) == 2
        assert seen == {"between"}


async def test_only_gate_definers_choose_and_only_full_viewers_are_shown(
    tmp_path: Path,
) -> None:
    async with sited(tmp_path, LATER, count=1) as site:
        body = {"mode": "adopt", "percent": 100}
        for role, status in (
            (Role.PRODUCER, 403),
            (Role.WORKER, 403),
            (Role.VIEWER, 403),
            (Role.OPERATOR, 200),
        ):
            reply = await site.rig.call(role, "PUT", "/calls/migration", body)
            assert reply.status_code == status, (role, reply.text)
        for path in ("/calls/migration", "/calls/migration/shadow"):
            assert (await site.rig.call(Role.VIEWER, "GET", path)).status_code == 200
            assert (await site.rig.call(Role.PRODUCER, "GET", path)).status_code == 403
            some = await site.rig.token(Role.OPERATOR, tenants=["acme"], name=f"for {path}")
            assert (await site.rig.call(some, "GET", path)).status_code == 403
        wrong = await site.rig.call(Role.ADMIN, "PUT", "/calls/migration", {"mode": "adapt"})
        assert wrong.status_code == 422, wrong.text
        shown = await site.rig.ask(Role.VIEWER, "/calls/migration")
        assert (shown["mode"], shown["percent"], shown["changed_by"]) == (
            "adopt",
            100.0,
            str(Role.OPERATOR),
        )


async def test_choice_without_an_owner_column_is_refused(
    tmp_path: Path,
) -> None:
    async with (
        carrying(numbers=["+15550001001"]) as carrier,
        calling(
            carrier,
            f"sqlite:///{tmp_path}/jobs.db",
            f"sqlite:///{tmp_path}/directory.db",
            table={"own": True},
            numbers={},
        ) as site,
    ):
        reply = await site.rig.call(Role.ADMIN, "PUT", "/calls/migration", {"mode": "shadow"})
        assert reply.status_code == 422, reply.text
        assert "calls.table.columns.owner" in reply.text
        assert (await site.post(lead(1))).status_code == 201


@pytest.mark.parametrize(("column", "value"), [("fields", "{broken"), ("zone", "Mars/Base")])
async def test_row_that_is_not_a_valid_lead_stays_and_delays_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, column: str, value: str
) -> None:
    async with sited(tmp_path, LATER) as site:
        change = f"UPDATE their_leads SET {column} = :value WHERE lead_no = 2"  # noqa: S608
        await run(f"sqlite:///{tmp_path}/theirs.db", change, value=value)
        await choose(site, "adopt", percent=100)

        async def two() -> bool:
            return await states(site) == [State.SCHEDULED] * 2

        await site.until(two, "adopted")
    assert [owner for owner, _, _ in await rows(tmp_path)] == ["headway", "legacy", "headway"]
    assert "row is not a valid lead: id=2" in caplog.text
    assert value in caplog.text


async def test_two_operators_may_choose_at_once(
    fast_postgres_server: PostgresServer | GivenPostgres,
) -> None:
    with fresh_database(fast_postgres_server.url) as url:
        await make_theirs(url)
        async with opened(settings_of(url), url) as table, asyncio.timeout(60):
            migration = Migration(MigrationSettings(), table, table.database, Timing())
            async with table.database.change() as session:
                # Another server's choice, which is not committed yet.
                values = {"id": 1, "mode": "adopt", "percent": 50.0, "resellers": "[]"}
                values |= {"changed_at": 1, "changed_by": "other"}
                await session.execute(insert(MIGRATION).values(values))
                choosing = asyncio.create_task(
                    migration.set_plan(MigrationPlan(mode=MigrationMode.SHADOW), "me")
                )
                await until_it_waits(url, choosing)
            await choosing
            now = await migration.current_plan()
            assert (now.plan.mode, now.changed_by) == (MigrationMode.SHADOW, "me")


async def test_call_whose_template_was_removed_is_restored_in_a_lost_store(tmp_path: Path) -> None:
    """Its row would stay running permanently, and its line would be used for a second call."""
    async with on_own_table(tmp_path, work=False, settings={"table": {"own": True}}) as calls:
        await calls.number()
        row = LeadRow(
            id="7", phone=PHONE, tz="UTC", reseller="acme", template="removed", due_at=1_000_000
        )
        running = RowState(
            row=row, status="running", ours=True, ref=f"{row.lead}:1", number=NUMBER, since_at=1
        )
        recipe = LeadRecipe(context=calls.system.context)
        restored = await _in_flight(calls.app.kind("lead"), recipe, running)
    assert restored.job.id == row.lead
    assert dict(restored.members) == {"calls.numbers": NUMBER}
