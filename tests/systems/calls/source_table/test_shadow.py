"""Shadow mode: decisions are recorded next to what the older system did, without calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.contract.definitions import Role
from headway.contract.views import GatesQuery, JobsQuery
from headway.core.state import State
from headway.server.paging import encode_cursor
from tests.systems.calls.source_table.databases import run
from tests.systems.calls.source_table.site import Site
from tests.systems.calls.source_table.test_row_migration import choose, rows, sited

COUNT = 6


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Run a site with six due rows, one number with two channels, and calls of 250 ms."""
    due = "2026-01-01 12:00:00"
    more: dict[str, Any] = {"migration": {"talk": "250ms", "every": "1s"}}
    async with sited(tmp_path, due, count=COUNT, **more) as one:
        yield one


async def test_shadow_decides_by_the_same_limits_and_makes_no_call(
    site: Site, tmp_path: Path
) -> None:
    before = await rows(tmp_path)
    await choose(site, "shadow", percent=100)

    async def decided() -> bool:
        return len((await site.rig.ask(Role.VIEWER, "/calls/migration/shadow"))["rows"]) == COUNT

    await site.until(decided, "all are decided")
    told = await site.rig.ask(Role.VIEWER, "/calls/migration/shadow")
    assert told["comparison"] == {
        "decided": COUNT,
        "compared": 0,
        "median_ms": None,
        "p99_ms": None,
    }
    assert {one["number"] for one in told["rows"]} == {"+15550001001"}
    assert all(one["decided_at"] > one["due_at"] and one["why"] for one in told["rows"])
    # Two lines, and calls of 250 ms: of any three, the third waits for one of the others to end.
    moments = [one["decided_at"] for one in told["rows"]]
    assert all(third - first >= 250 for first, third in zip(moments, moments[2:], strict=False))
    assert await rows(tmp_path) == before
    assert site.called() == []
    assert await site.jobs() == []


async def test_changed_number_applies_to_shadows_that_wait_for_it(site: Site) -> None:
    async def parked() -> bool:
        query = JobsQuery(kind="lead_shadow", states=(State.PARKED, State.WAITING), limit=COUNT)
        return len((await site.app.store.read(query)).rows) == COUNT

    number = "/numbers/+15550001001"
    await site.rig.call(Role.ADMIN, "PATCH", number, {"status": "DISABLED"})
    await choose(site, "shadow", percent=100)
    await site.until(parked, "all wait")
    await site.rig.call(Role.ADMIN, "PATCH", number, {"status": "AVAILABLE"})

    async def decided() -> bool:
        return bool((await site.rig.ask(Role.VIEWER, "/calls/migration/shadow"))["rows"])

    await site.until(decided, "one is decided")


async def test_shadow_gates_share_nothing_with_those_of_real_calls(site: Site) -> None:
    await choose(site, "shadow", percent=100)

    async def decided() -> bool:
        return bool((await site.rig.ask(Role.VIEWER, "/calls/migration/shadow"))["rows"])

    await site.until(decided, "one is decided")
    gates = (await site.app.store.read(GatesQuery(limit=1_000))).rows
    names = {gate.name for gate in gates}
    assert {"calls.numbers", "shadow.calls.numbers"} <= names
    jobs = (await site.app.store.read(JobsQuery(kind="lead_shadow", limit=100))).rows
    assert all(use.name.startswith("shadow.") for job in jobs for use in job.gates)


async def test_results_of_the_older_system_are_shown_beside_and_compared(
    site: Site, tmp_path: Path
) -> None:
    await choose(site, "shadow", percent=100)

    async def decided() -> bool:
        return len((await site.rig.ask(Role.VIEWER, "/calls/migration/shadow"))["rows"]) == COUNT

    await site.until(decided, "all are decided")
    told = (await site.rig.ask(Role.VIEWER, "/calls/migration/shadow", limit=4))["rows"]
    for one in told:
        await run(
            f"sqlite:///{tmp_path}/theirs.db",
            "UPDATE their_leads SET state = 'closed', called_at ="
            " strftime('%Y-%m-%d %H:%M:%f', :at / 1000.0, 'unixepoch') WHERE lead_no = :id",
            at=one["decided_at"] - 1_500,
            id=int(one["row_id"]),
        )

    async def compared() -> bool:
        page = await site.rig.ask(Role.VIEWER, "/calls/migration/shadow")
        return page["comparison"]["compared"] == 4

    await site.until(compared, "four are compared")
    page = await site.rig.ask(Role.VIEWER, "/calls/migration/shadow", limit=4)
    assert page["comparison"] == {
        "decided": COUNT,
        "compared": 4,
        "median_ms": 1_500,
        "p99_ms": 1_500,
    }
    rest = await site.rig.ask(Role.VIEWER, "/calls/migration/shadow", cursor=page["cursor"])
    assert len(page["rows"]) == 4
    assert len(rest["rows"]) == COUNT - 4
    assert rest["cursor"] is None
    for text in ("5", "x 1", "\u0665 1", f"{10**18} 1"):
        cursor = encode_cursor(text)
        wrong = await site.rig.call(Role.VIEWER, "GET", f"/calls/migration/shadow?cursor={cursor}")
        assert wrong.status_code == 422, text
        assert "the cursor does not belong to this listing" in wrong.text


async def test_job_of_another_reseller_decides_nothing_about_a_row(site: Site) -> None:
    token = await site.rig.token(Role.PRODUCER, tenants=["acme"])
    args = {"phone": "+15550100000", "tz": "UTC", "template": "default"}
    of = {"kind": "lead_shadow", "lane": "calls.shadow", "tenant": "acme"}
    made = [
        # Row 1 belongs to bolt, and row 99 does not exist.
        await site.rig.send(
            token, key=f"{n}", args={**args, "row": row, "reseller": reseller}, **of
        )
        for n, (row, reseller) in enumerate([("1", "acme"), ("1", "bolt"), ("99", "acme")])
    ]

    async def ended() -> bool:
        page = await site.app.store.read(JobsQuery(ids=tuple(made), limit=len(made)))
        return all(job.state is State.SUCCEEDED for job in page.rows)

    await site.until(ended, "all ended")
    assert (await site.rig.ask(Role.VIEWER, "/calls/migration/shadow"))["rows"] == []
