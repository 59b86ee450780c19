"""The table as the source of truth: a change applies only if the row is as expected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import InvalidValue, KeyConflict, StoreMisconfigured, StoreUnavailable
from headway.systems.calls.source_table.lead_table import LeadTable
from headway.systems.calls.source_table.settings import LeadRow, lead_of
from headway.systems.calls.source_table.source_table import write_leads
from tests.systems.calls.source_table.databases import (
    COLUMNS,
    make_theirs,
    only_readable,
    opened,
    run,
    settings_of,
)
from tests.systems.calls.source_table.site import NUMBERS, calling
from tests.systems.telephony.carrier_rig import carrying

AT = int(datetime(2026, 11, 21, 9, 0, 0, 125_000, UTC).timestamp() * 1000)


def lead(n: int = 1, **more: Any) -> LeadRow:
    given = {
        "phone": f"+1555010{n:04}",
        "tz": "America/Denver",
        "reseller": "acme",
        "due_at": AT + n,
    }
    return LeadRow(**{**given, **more})


@pytest.fixture(params=["theirs", "own"])
async def table(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[LeadTable]:
    """Open someone else's table, and Headway's own, in each kind of database."""
    if request.param == "own":
        async with opened({"own": True}, database_url) as one:
            yield one
        return
    await make_theirs(database_url)
    async with opened(settings_of(database_url)) as one:
        yield one


async def all_pending(table: LeadTable, *, ours: bool = True) -> list[LeadRow]:
    return [row async for page in table.pending(ours=ours) for row in page]


# ----------------------------------------------------------------------------------------- intake


async def test_accepted_leads_are_read_back_unchanged(table: LeadTable) -> None:
    given = [lead(1, key="k1", payload={"name": "Ada", "n": [1, None]}), lead(2)]
    taken = await write_leads(table, given)
    assert [one.created for one in taken] == [True, True]
    assert [one.row.named("") for one in taken] == given
    read = await all_pending(table)
    assert sorted(read, key=lambda row: row.due_at) == [one.row for one in taken]


async def test_repeat_under_a_key_returns_its_row(table: LeadTable) -> None:
    (first,) = await write_leads(table, [lead(1, key="k1")])
    again = await write_leads(
        table, [lead(1, key="k1", due_at=AT + 99), lead(2, key="k1", reseller="b")]
    )
    assert [one.created for one in again] == [False, True]
    assert again[0].row == first.row
    twice = await write_leads(table, [lead(3, key="k3"), lead(3, key="k3")])
    assert [one.created for one in twice] == [True, False]
    assert twice[0].row.id == twice[1].row.id


async def test_another_body_under_a_key_writes_nothing(table: LeadTable) -> None:
    await write_leads(table, [lead(1, key="k1")])
    with pytest.raises(KeyConflict, match="'k1'"):
        await write_leads(table, [lead(2), lead(2, key="k1")])
    assert len(await all_pending(table)) == 1


async def test_racing_callers_under_one_key_get_one_row(table: LeadTable) -> None:
    taken = await asyncio.gather(*(write_leads(table, [lead(1, key="k1")]) for _ in range(8)))
    assert sum(one.created for (one,) in taken) == 1
    assert len({one.row.id for (one,) in taken}) == 1


@pytest.mark.slow
async def test_thousands_of_leads_are_one_step(table: LeadTable) -> None:
    taken = await write_leads(table, [lead(n) for n in range(1_200)])
    assert len({one.row.id for one in taken}) == 1_200
    assert len(await all_pending(table)) == 1_200


async def test_lead_with_values_the_table_cannot_store_is_refused(
    database_url: str,
) -> None:
    await make_theirs(database_url)
    columns = {k: v for k, v in settings_of(None)["columns"].items() if k != "payload"}
    async with opened(settings_of(database_url, columns=columns)) as table:
        with pytest.raises(InvalidValue, match=r"the lead has payload = .* has no column for it"):
            await write_leads(table, [lead(1, payload={"a": 1})])
        assert await all_pending(table) == []


# ---------------------------------------------------------------------------------------- changes


async def test_call_starts_once_for_a_pending_row(table: LeadTable) -> None:
    (one,) = await write_leads(table, [lead(1)])
    began = await asyncio.gather(
        *(table.mark_running(one.row.id, ref=f"j:{n}", number="+15550001", at=AT) for n in range(6))
    )
    assert began.count(True) == 1
    (standing,) = [each async for page in table.running() for each in page]
    assert standing.ref == f"j:{began.index(True)}"
    assert (standing.number, standing.since_at, standing.row) == ("+15550001", AT, one.row)
    assert await all_pending(table) == []


async def test_call_returns_only_the_row_that_names_it(table: LeadTable) -> None:
    (one,) = await write_leads(table, [lead(1)])
    assert not await table.put_back(one.row.id, ref="j:1")
    await table.mark_running(one.row.id, ref="j:1", number="+15550001", at=AT)
    assert not await table.put_back(one.row.id, ref="j:2")
    assert await table.put_back(one.row.id, ref="j:1")
    assert not await table.put_back(one.row.id, ref="j:1")
    assert await all_pending(table) == [one.row]


async def test_end_is_written_once(table: LeadTable) -> None:
    (one,) = await write_leads(table, [lead(1)])
    await table.mark_running(one.row.id, ref="j:1", number="+15550001", at=AT)
    assert await table.mark_done(one.row.id, outcome="BUSY", at=AT)
    assert not await table.mark_done(one.row.id, outcome="COMPLETED", at=AT)
    assert not await table.mark_running(one.row.id, ref="j:2", number="+15550001", at=AT)
    assert not await table.put_back(one.row.id, ref="j:1")


async def test_table_that_may_only_be_read_is_refused_at_the_start(database_url: str) -> None:
    await make_theirs(database_url)
    url = await only_readable(database_url)
    columns = {name: one for name, one in COLUMNS.items() if name != "owner"}
    settings = {**settings_of(url, columns=columns), "owners": {}}
    with pytest.raises(StoreMisconfigured, match=r"refused this: .*\(its user must be able to"):
        async with opened(settings):
            pass


async def test_table_of_an_older_system_that_may_only_be_read_refuses_changes(
    database_url: str,
) -> None:
    await make_theirs(database_url)
    async with opened(settings_of(await only_readable(database_url))) as table:
        assert await all_pending(table, ours=False) == []
        with pytest.raises(StoreMisconfigured, match=r"refused this: .*\(its user must be able to"):
            await table.mark_running("1", ref="j:1", number="+15550001", at=AT)


async def test_lead_whose_row_may_not_be_changed_is_retried_by_its_backoff_and_not_called(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/theirs.db"
    await make_theirs(url)
    await run(
        url,
        "INSERT INTO their_leads (msisdn, zone, call_after, state, handled_by)"
        " VALUES ('+15550100001', 'Etc/UTC', '2026-11-21 09:00:00', 'new', 'headway')",
    )
    table = settings_of(await only_readable(url), every="1s")
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("jobs", "directory")]
    async with (
        carrying(numbers=tuple(NUMBERS)) as carrier,
        calling(carrier, *stores, table=table) as site,
    ):

        async def failed() -> bool:
            runs = [run for job in await site.jobs() for run in job.runs]
            return any(run.outcome == "failed" for run in runs)

        await site.until(failed, "failed")
        (job,) = await site.jobs()
        assert "refused this: attempt to write a readonly database" in job.runs[-1].error
        # By the backoff of its kind; a table that does not answer is tried again after 5 s.
        assert job.due_at - job.runs[-1].ended_at < 5_000
        assert site.called() == []


# ----------------------------------------------------------------------------------------- owners


async def theirs(url: str, n: int) -> None:
    for i in range(n):
        await run(
            url,
            "INSERT INTO their_leads (msisdn, call_after, state, handled_by)"
            " VALUES (:phone, '2026-11-21 09:00:00', 'new', 'legacy')",
            phone=f"+1555010{i:04}",
        )


async def test_rows_change_hands_only_while_pending_and_owned_by_the_other(
    database_url: str,
) -> None:
    await make_theirs(database_url)
    await theirs(database_url, 4)
    await run(database_url, "UPDATE their_leads SET state = 'calling' WHERE lead_no = 3")
    await run(database_url, "UPDATE their_leads SET handled_by = NULL WHERE lead_no = 4")
    async with opened(settings_of(database_url)) as table:
        taken = await table.set_owner(["1", "2", "3", "4"], ours=True)
        assert sorted(row.id for row in taken) == ["1", "2"]
        assert await table.set_owner(["1", "2"], ours=True) == []
        assert [row.id for row in await all_pending(table)] == ["1", "2"]
        assert await all_pending(table, ours=False) == []
        await table.mark_running("1", ref="j:1", number="+15550001", at=AT)
        assert [row.id for row in await table.set_owner(["1", "2", "3"], ours=False)] == ["2"]
        assert not await table.mark_running("2", ref="j:1", number="+15550001", at=AT)
        assert not await table.mark_done("2", outcome="ABORT", at=AT)
        assert (await table.counts()) == {
            "ours_pending": 0,
            "ours_running": 1,
            "theirs_pending": 1,
            "theirs_running": 1,
        }


async def test_row_locked_by_the_older_system_is_skipped(database_url: str) -> None:
    if not database_url.startswith("postgresql"):
        pytest.skip("SQLite locks no rows")
    await make_theirs(database_url)
    await theirs(database_url, 2)
    async with opened(settings_of(database_url)) as table, table.database.change() as other:
        await other.execute(table.select_all().where(table.among(["1"])).with_for_update())
        async with asyncio.timeout(120):
            assert [row.id for row in await table.set_owner(["1", "2"], ours=True)] == ["2"]


# ----------------------------------------------------------------------------------------- errors


async def test_unreadable_time_is_a_fault_of_its_row_alone(database_url: str) -> None:
    """SQLAlchemy and the drivers raise for it before they return any row of the page."""
    postgres = database_url.startswith("postgresql")
    bad = ["infinity", "20000-01-01 00:00:00"] if postgres else ["soon", "2026-02-30 09:00:00"]
    await make_theirs(database_url)
    await theirs(database_url, 3)
    for lead_no, value in enumerate(bad, 1):
        change = f"UPDATE their_leads SET call_after = '{value}' WHERE lead_no = {lead_no}"  # noqa: S608
        await run(database_url, change)
    await run(database_url, "UPDATE their_leads SET handled_by = 'headway'")
    async with opened(settings_of(database_url)) as table:
        pending = await all_pending(table)
        assert [bool(row.fault) for row in pending] == [True, True, False]
        assert all("'call_after' contains" in row.fault for row in pending[:2])
        assert pending[2].due_at == AT - 125
        await table.mark_running("3", ref="j:1", number="+15550001", at=AT)
        await run(database_url, f"UPDATE their_leads SET called_at = '{bad[0]}' WHERE lead_no = 3")  # noqa: S608
        (running,) = [one async for page in table.running() for one in page]
        assert (running.ref, running.since_at) == ("j:1", None)
        assert "'called_at' contains" in running.row.fault


@pytest.mark.parametrize("payload", ["a text", "17", "", 17, None, [None], {"a": "b"}])
async def test_any_json_value_is_read_unchanged(table: LeadTable, payload: object) -> None:
    (taken,) = await write_leads(table, [lead(1, payload=payload)])
    (read,) = await all_pending(table)
    assert (read.payload, read.fault) == (payload, "")
    assert read == taken.row


@pytest.mark.parametrize("broken", ["{broken", "NaN1", '{"a": 1e400}'])
async def test_broken_json_in_a_json_column_of_sqlite_is_a_fault_of_its_row_alone(
    tmp_path: Path, broken: str
) -> None:
    url = f"sqlite:///{tmp_path}/theirs.db"
    await make_theirs(url)
    await run(url, "ALTER TABLE their_leads DROP COLUMN fields")
    await run(url, "ALTER TABLE their_leads ADD COLUMN fields json")
    async with opened(settings_of(url)) as table:
        await write_leads(table, [lead(1, payload={"a": 1}), lead(2, payload={"a": 2})])
        await run(url, "UPDATE their_leads SET fields = :value WHERE lead_no = 1", value=broken)
        first, second = await all_pending(table)
        assert "'fields' contains" in first.fault
        assert (second.payload, second.fault) == ({"a": 2}, "")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"table": "their_lead"}, r"no table 'their_lead'.*did you mean their_leads"),
        ({"columns": {"phone": "msisdnn"}}, r"columns.phone: .*'msisdnn'.*did you mean msisdn"),
        ({"columns": {"id": None}}, r"names no column for id"),
        ({"columns": {"tz": "msisdn"}}, r"the column 'msisdn' twice"),
        ({"columns": {"phon": "msisdn"}}, r"no option 'phon'.*did you mean phone"),
        ({"statuses": {"pending": "a", "running": "a", "done": "b"}}, "must differ"),
        ({"statuses": {"pending": 1, "running": 2, "done": 3}}, r"statuses.pending is 1"),
        ({"own": True}, "own = true and"),
        ({"colums": {}}, "did you mean columns"),
        ({"every": "soon"}, "soon"),
        ({"columns": {"key": "result"}}, "the column 'result' is not unique"),
    ],
)
async def test_wrong_settings_are_refused_at_the_start(
    database_url: str, more: dict[str, Any], says: str
) -> None:
    await make_theirs(database_url)
    if "columns" in more:
        columns = {**settings_of(None)["columns"], **more["columns"]}
        if more["columns"].get("key"):
            del columns["outcome"]
        more = {"columns": {name: value for name, value in columns.items() if value}}
    with pytest.raises(InvalidValue, match=says):
        async with opened(settings_of(database_url, **more)):
            pass


async def test_unreachable_table_is_reported_like_an_unreachable_store(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/no/such/folder.db"
    with pytest.raises(StoreUnavailable):
        async with opened(settings_of(url)):
            pass


def test_lead_has_its_rows_id_if_that_is_a_uuid() -> None:
    own = "0193a1f0-0000-7000-8000-000000000001"
    assert lead_of(own) == lead_of(own.upper()) == own
    assert lead_of("17") == lead_of("17") != lead_of("18")
