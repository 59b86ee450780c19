from __future__ import annotations

from headway.contract.definitions import DeclareEntry, DefineRequest, EntrySpec, FireRequest
from headway.contract.operate import ActRequest, Verb
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.timetable.fires import next_fires
from headway.core.timetable.schedule import At, Cron, Every
from tests.cli.conftest import Headway
from tests.cli.seeding import claim, new_job, with_store

NIGHTLY = Cron("0 3 * * *", tz="Europe/Berlin")


def declare() -> None:
    async def work(store: Store) -> int:
        schedules = {"nightly": NIGHTLY, "often": Every(90_000), "morning": At("09:00")}
        items = tuple(
            DeclareEntry(spec=EntrySpec(name=name, schedule=schedule, job=new_job()))
            for name, schedule in schedules.items()
        )
        return await store.define(DefineRequest(items=items, author="code"))

    with_store(work)


def test_entries_are_listed_with_their_next_fires(headway: Headway):
    declare()
    entries = headway("timetable", "--json").document["entries"]
    assert [(one["spec"]["name"], one["schedule"]) for one in entries] == [
        ("morning", "at 09:00 daily (UTC)"),
        ("nightly", "cron: 0 3 * * * (Europe/Berlin)"),
        ("often", "every 1m 30s"),
    ]
    nightly = entries[1]["next"]
    assert nightly == next_fires(NIGHTLY, nightly[0] - 1, 3)
    assert "nightly" in headway("timetable").out


def test_next_fires_of_an_entry_are_shown_in_local_time(headway: Headway):
    declare()
    ran = headway("timetable", "next", "nightly", "4")
    rows = ran.out.splitlines()[1:]
    assert len(rows) == 4
    assert all(" 03:00:00+0" in row for row in rows)
    assert len(headway("timetable", "next", "nightly", "--json").document["next"]) == 10
    ran = headway("timetable", "next", "nightli")
    assert ran.err == "headway: there is no entry 'nightli' (did you mean nightly?)\n"
    ran = headway("timetable", "disable", "nightli")
    assert ran.err == "headway: no timetable entry 'nightli' (did you mean nightly?)\n"


def test_entry_is_disabled_and_enabled(headway: Headway):
    declare()
    assert headway("timetable", "disable", "often", "--reason", "loud").out == "often is off\n"
    assert headway("timetable", "--json").document["entries"][2]["next"] == []
    assert "is disabled" in headway("timetable", "next", "often").err
    assert headway("timetable", "enable", "often").out == "often is on\n"
    assert len(headway("timetable", "--json").document["entries"][2]["next"]) == 3
    # Its fires are inserted at once, not by the next round of a worker.
    laid = headway("jobs", "--state", "scheduled", "--json").document["jobs"]
    assert {job["entry"] for job in laid} == {"often"}
    assert len(laid) >= 10


OFTEN = 1_000_000


def fire(*, past: bool) -> int:
    """Declare an entry and insert fires ahead; with `past`, also one that is due now."""

    async def work(store: Store) -> int:
        now = (await store.read(StatsQuery())).now
        schedule = Every(OFTEN, anchor_at=now if past else 0)
        spec = EntrySpec(name="t", schedule=schedule, job=new_job())
        await store.define(DefineRequest(items=(DeclareEntry(spec=spec),), author="code"))
        moments = (*([now] if past else []), *next_fires(spec.schedule, now, 3))
        request = FireRequest(entry="t", revision=1, moments=moments, ahead_until=moments[-1])
        await store.fire(request)
        return now

    return with_store(work)


def last(headway: Headway) -> int | None:
    """Return when the entry last fired; check that the column LAST agrees."""
    (entry,) = headway("timetable", "--json").document["entries"]
    row = headway("timetable").out.splitlines()
    shown = row[1][row[0].index("LAST") : row[0].index("OVERLAP")].strip()
    assert bool(shown) is (entry["last"] is not None)
    return entry["last"]


def test_entry_that_never_fired_shows_no_last_fire(headway: Headway):
    fire(past=False)
    assert last(headway) is None
    for verb in ("disable", "enable"):
        assert headway("timetable", verb, "t").code == 0
        assert last(headway) is None


def test_last_fire_really_happened_even_after_an_edit(headway: Headway):
    at = fire(past=True)
    assert len(claim("main")) == 1
    assert last(headway) == at

    async def edit(store: Store) -> int:
        spec = EntrySpec(name="t", schedule=Cron("0 3 * * *"), job=new_job())
        return await store.define(DefineRequest(items=(DeclareEntry(spec=spec),), author="code"))

    with_store(edit)
    assert last(headway) == at
    assert headway("timetable", "disable", "t").code == 0
    assert last(headway) == at


def test_fires_that_were_cancelled_or_run_early_are_not_shown_as_next(headway: Headway):
    now = fire(past=False)
    fires = next_fires(Every(OFTEN), now, 6)
    jobs = headway("jobs", "--state", "scheduled", "--json").document["jobs"]
    first, second, _ = sorted(jobs, key=lambda job: job["due_at"])
    assert headway("cancel", first["id"]).code == 0
    early = ActRequest(request="early", verb=Verb.RUN_NOW, ids=(second["id"],), author="ann")
    with_store(lambda store: store.act(early))
    (entry,) = headway("timetable", "--json").document["entries"]
    assert entry["next"] == fires[1:4]
    assert len(claim("main")) == 1
    (entry,) = headway("timetable", "--json").document["entries"]
    assert entry["next"] == fires[2:5]
    assert headway("timetable", "next", "t", "4", "--json").document["next"] == fires[2:]
    assert headway("timetable", "disable", "t").code == 0
    assert headway("timetable", "next", "t", "2", "--json").document["next"] == fires[:2]


def test_unknown_entry_is_a_caller_error(headway: Headway):
    headway("migrate")
    for verb in ("next", "enable", "disable"):
        ran = headway("timetable", verb, "nope")
        assert (ran.code, ran.out) == (2, "")
        assert "nope" in ran.err
