"""The other tables in Lua behave like the reference, with names that try to break out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from operator import itemgetter
from typing import Any

import pytest

from headway.contract.definitions import LaneSpec
from headway.core.gates.hours import hours_spec
from headway.core.gates.spec import GateKind, GateSpec
from headway.core.job import derived_id
from headway.core.state import State
from headway.stores.ledger.gaterows import FOREVER, GateRow, PermitRow
from headway.stores.ledger.rows import KeyRow, LaneRow, SignalRow, TrailRow, WorkerRow
from headway.stores.memory.gates import MemoryGates, MemoryPermits, MemoryStarts
from headway.stores.memory.journal import Journal
from headway.stores.memory.records import MemoryCounts, MemorySignals, MemoryWorkers
from headway.stores.memory.timing import StepTime
from tests.redis.harness import Snippets
from tests.redis.job_pair import NAMES
from tests.redis.normalized import normalized
from tests.servers.redis import GivenRedis, RedisServer

IDS = [derived_id("tables", number) for number in range(5)]
MOMENTS = (0, 1, 2**32, FOREVER)
_namespaces = count(1)


@pytest.fixture
def lua(redis_server: RedisServer | GivenRedis) -> Iterator[Snippets]:
    """A separate namespace."""
    snippets = Snippets(redis_server.url, f"tables-{next(_namespaces)}")
    yield snippets
    snippets.close()


@pytest.fixture
def time(lua: Snippets) -> StepTime:
    """The time of both tables."""
    time = StepTime(lambda: lua.now)
    time.begin()
    return time


def test_permits_are_found_by_job_by_gate_and_in_order(lua: Snippets) -> None:
    draw, memory = random.Random(4), MemoryPermits(Journal())
    held: list[PermitRow] = []
    for step in range(25):
        taken = {(one.gate, one.job) for one in held}
        new = [
            PermitRow(gate, job, 3, draw.choice(("", "p\x00")), 2**31 - 1, draw.choice(MOMENTS), h)
            for gate, job in {(draw.choice(NAMES), draw.choice(IDS)) for _ in range(6)}
            if (gate, job) not in taken
            for h in (draw.choice(("run", "settled")),)
        ]
        gone = draw.sample(held, len(held) // 3)
        for table, rows in (("add", new), ("remove", gone)):
            lua.call(f"Permits.{table}", rows)
            getattr(memory, table)(rows)
        held = [one for one in held + new if one not in gone]
        _compare_permits(lua, memory, (1, 100)[step % 2])
    lua.call("Permits.remove", held)
    assert lua.contents() == {}


def test_all_permits_of_jobs_are_removed_and_summed_by_gate(lua: Snippets) -> None:
    memory = MemoryPermits(Journal())
    kept, first, second = IDS[:3]
    rows = [
        PermitRow("a\x00", first, 1, "", 2, MOMENTS[0], "run"),
        PermitRow("p/é", first, 1, "p", 5, MOMENTS[0], "settled"),
        PermitRow("p/é", second, 7, "p", 1, MOMENTS[1], "run"),
        PermitRow("p/é", kept, 1, "p", 9, MOMENTS[1], "run"),
    ]
    lua.call("Permits.add", rows)
    assert lua.call("Permits.remove_all", [second, first, IDS[3]]) == [
        {"gate": "p/é", "pool": "p", "amount": 6},
        {"gate": "a\x00", "pool": "", "amount": 2},
    ]
    memory.add(rows[3:])
    _compare_permits(lua, memory, 100)
    lua.call("Permits.remove_all", [kept])
    assert lua.contents() == {}


def _compare_permits(lua: Snippets, memory: MemoryPermits, limit: int) -> None:
    def by_gate(rows: list[Any]) -> list[Any]:
        return sorted(rows, key=lambda row: (row["job"], row["gate"]))

    assert by_gate(lua.call("Permits.of_jobs", IDS)) == by_gate(normalized(memory.of_jobs(IDS)))
    for gate in NAMES:
        held = memory.at([gate], limit)[gate]
        assert lua.call("Permits.at", gate, limit) == normalized(held.first)
        assert lua.run("return {Permits.count(request)}", gate) == [held.permits, held.amount]
        assert lua.call("Permits.sums", gate, limit) == normalized(memory.sums(gate, limit))
        after = (gate, IDS[2])
        assert lua.call("Permits.page", after, limit) == normalized(memory.page(after, limit))
    assert lua.call("Permits.sums", "", limit) == normalized(memory.sums("", limit))
    assert lua.call("Permits.page", ("", ""), limit) == normalized(memory.page(("", ""), limit))


def test_starts_are_counted_by_millisecond_and_forgotten_by_time(
    lua: Snippets, time: StepTime
) -> None:
    draw, memory = random.Random(5), MemoryStarts(time, Journal())
    for _ in range(40):
        counts = {draw.choice(NAMES): draw.choice((1, 2**31)) for _ in range(3)}
        lua.run("Starts.add(request)", counts)
        memory.add(counts)
        lua.now += draw.choice((0, 0, 1, 7))
        time.begin()
        gate, at = draw.choice(NAMES), lua.now - draw.choice((0, 3, 9, lua.now, lua.now + 1))
        assert lua.call("Starts.total", gate, at) == memory.total(gate, at, 0)
        assert lua.call("Starts.oldest", gate, at, 2) == normalized(memory.oldest(gate, at, 2))
        if draw.random() < 0.3:
            assert lua.call("Starts.trim", gate, at) == memory.trim(gate, at)
    lua.run(f"Starts.put('a', {{[{lua.now}] = 4, [3] = 2}})")
    memory.put("a", {lua.now: 4, 3: 2})
    assert lua.call("Starts.oldest", "a", -1, 99) == normalized(memory.oldest("a", -1, 99))


def test_rate_of_five_thousand_starts_is_summed_and_trimmed_at_once(lua: Snippets) -> None:
    lua.run("local m = {} for at = 1, 5000 do m[at] = 2 end Starts.put('a', m)")
    assert lua.call("Starts.total", "a", -1) == 10_000
    assert lua.call("Starts.total", "a", 4_999) == 2
    assert lua.call("Starts.trim", "a", 4_500) == 9_000
    assert lua.call("Starts.total", "a", -1) == 1_000


def test_gates_are_returned_completely_and_idle_ones_are_forgotten(
    lua: Snippets, time: StepTime
) -> None:
    draw, memory = random.Random(6), MemoryGates(time, Journal())
    for _ in range(30):
        rows = [_gate(draw, lua.now, name) for name in draw.sample(NAMES, 3)]
        lua.call("Gates.save", rows)
        memory.save(rows)
        here = lua.call("Gates.load", NAMES)
        assert here == normalized(memory.load(NAMES))
        after = draw.choice(("", *NAMES))
        assert lua.call("Gates.page", after, 3) == normalized(memory.page(after, 3))
        assert lua.call("Gates.due_timers", 9) == memory.due_timers(9)
        assert lua.call("Gates.next_timer") == memory.next_timer()
        short = lua.call("Gates.short_horizons", FOREVER, 9)
        expected = normalized(memory.short_horizons(FOREVER, 9))
        assert sorted(short, key=_name) == sorted(expected, key=_name)
    lua.call("Gates.save", [GateRow(name=name, template="") for name in NAMES])
    assert lua.contents() == {}


def _name(row: dict[str, str]) -> str:
    return row["name"]


def _gate(draw: random.Random, now: int, name: str) -> GateRow:
    return GateRow(
        name=name,
        template=draw.choice(("", "t{x}")),
        pool=draw.choice(("", "p\x00")),
        used=draw.choice((0, 0, 2**31)),
        capacity=draw.choice((None, 0, 2**31 - 1)),
        closed_until=draw.choice((None, FOREVER)),
        closed_by=draw.choice(("", "me\x00")),
        closed_reason=draw.choice(("", "why")),
        last=draw.choice(("", "m|")),
        timer_at=draw.choice((None, now, now + 1)),
        lanes=draw.choice(((), ("a\x00", "b"))),
        zone=draw.choice((None, "UTC")),
        opens=draw.choice(((), ((1, 2), (3, FOREVER)))),
        horizon_at=draw.choice((None, 5, FOREVER)),
    )


def test_declared_gates_keep_the_code_and_the_operator_version(lua: Snippets) -> None:
    hours = hours_spec("09:00-18:00", exceptions={"2026-12-25": None})
    spec = GateSpec(name="h\x00", kind=GateKind.HOURS, shared=True)
    sent = {**normalized(spec), "hours": hours.to_dict()}
    lua.call("Gates.save_template", {"spec": sent})
    assert lua.run("return Gates.current(Gates.templates()['h\\0']).capacity") is None
    assert lua.call("Gates.templates") == {"h\x00": {"spec": normalized(sent)}}
    lua.call("Gates.save_template", {"spec": sent, "override": {**sent, "capacity": 2}})
    assert lua.run("return Gates.current(Gates.templates()['h\\0']).capacity") == 2


def test_signals_are_known_received_kept_and_forgotten(lua: Snippets, time: StepTime) -> None:
    draw, memory = random.Random(7), MemorySignals(time, Journal())
    for _ in range(60):
        scope = draw.choice((*IDS, "a", "a\x00"))
        row = SignalRow(
            scope=scope, event=draw.choice(("e", "\x00", "e\x00")), key=scope, at=lua.now
        )
        # Only events for a key are kept; an event in a job's own scope is finished.
        if scope not in IDS and draw.random() < 0.6:
            row.kept_until, row.payload = lua.now + draw.choice((1, 3_600_000)), b"\x00\xff" * 300
        lua.now += 1
        time.begin()
        lua.call("Signals.save", row)
        memory.save(row)
        key, job = draw.choice(NAMES), draw.choice(IDS)
        lua.call("Signals.make_known", key, job, 2**31)
        memory.make_known(key, job, 2**31)
        _compare_signals(lua, memory, draw)
        if draw.random() < 0.2:
            lua.call("Signals.forget_jobs", [job])
            memory.forget_job(job)
    stale = memory.stale(5)
    lua.call("Signals.drop", stale)
    memory.drop(stale)
    _compare_signals(lua, memory, draw)


def _compare_signals(lua: Snippets, memory: MemorySignals, draw: random.Random) -> None:
    scope = draw.choice((*IDS, "a", "a\x00"))
    for event in ("e", "\x00", "e\x00"):
        here = lua.call("Signals.received", scope, event)
        assert _unnumbered([here] if here else []) == normalized(
            [row for row in [memory.received(scope, event)] if row]
        )
    for key in NAMES:
        assert tuple(lua.run("return Signals.known(request) or {}", key)) == (
            memory.known(key) or ()
        )
    kept = sorted(memory.kept(scope), key=lambda row: row.at)
    assert _unnumbered(lua.call("Signals.kept", scope)) == normalized(kept)
    assert lua.call("Signals.kept_count") == memory.kept_count()
    assert _unnumbered(lua.call("Signals.stale", 3)) == normalized(memory.stale(3))
    assert lua.call("Signals.all_known", "a", 3) == normalized(memory.all_known("a", 3))
    after = (scope, "e")
    assert _unnumbered(lua.call("Signals.all_received", after, 4)) == normalized(
        memory.all_received(after, 4)
    )


def _unnumbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "number"} for row in rows]


def test_workers_expire_in_the_order_of_their_leases(lua: Snippets, time: StepTime) -> None:
    draw, memory = random.Random(8), MemoryWorkers(time, Journal())
    for _ in range(40):
        worker = WorkerRow(
            id=draw.choice(NAMES),
            name=draw.choice(("", "n\x00")),
            lanes=draw.choice(((), ("a", "b"))),
            seen_at=lua.now,
            lease_until=lua.now + draw.choice((-1, 0, 1, 30_000)),
            request=draw.choice((0, 2**40)),
            lapsed=draw.random() < 0.3,
        )
        lua.call("Workers.save", worker)
        memory.save(worker)
        if draw.random() < 0.2:
            gone = draw.sample(NAMES, 2)
            lua.call("Workers.remove", gone)
            memory.remove(gone)
        assert lua.call("Workers.load", worker.id) == normalized(memory.load(worker.id))
        assert lua.call("Workers.lapsed", 3) == normalized(memory.lapsed(3))
        found = lua.call("Workers.all")
        assert sorted(found, key=itemgetter("id")) == normalized(memory.all())


def test_counts_and_totals_add_up_by_lane_and_in_total(lua: Snippets) -> None:
    draw, memory = random.Random(9), MemoryCounts(Journal())
    states = (None, *State)
    for _ in range(60):
        lane, old, new = draw.choice(NAMES), draw.choice(states), draw.choice(states)
        n = draw.choice((1, 2**40))
        lua.run(
            "Counts.move(request.lane, request.old, request.new, request.n)",
            {"lane": lane, "old": old, "new": new, "n": n},
        )
        memory.move(lane, old, new, n)
        lua.call("Counts.happened", lane, n)
        memory.happened(lane, n)
    touched = {lane: states for lane, states in memory.of_lanes(NAMES).items() if states}
    assert lua.call("Counts.of_lanes", NAMES) == normalized(touched)
    assert lua.call("Counts.of_states") == normalized(memory.of_states())
    assert lua.call("Counts.totals") == normalized(memory.totals())


def test_lanes_keep_their_settings_and_their_tenants_starts(lua: Snippets) -> None:
    lua.call("Lanes.ensure", NAMES)
    spec = LaneSpec(name="a", weights=(("t\x00", 3),), fair="tenant")
    row = LaneRow(name="a", spec=spec, override=replace(spec, max_backlog=0), level=2**50)
    lua.call("Lanes.save", row)
    lua.call("Lanes.ensure", NAMES)
    assert sorted(lua.call("Lanes.names")) == sorted(NAMES)
    found = lua.call("Lanes.load", [*NAMES, "other"])
    assert found == {name: normalized(LaneRow(name=name)) for name in NAMES} | {
        "a": normalized(row)
    }
    assert lua.run("return Lanes.current(Lanes.load({'a'}).a).max_backlog") == 0
    starts = {name: 2**50 + place for place, name in enumerate(NAMES)}
    lua.call("Lanes.save_tenant_starts", "a", starts)
    lua.call("Lanes.save_tenant_starts", "a\x00", {"": 1})
    assert lua.call("Lanes.tenant_starts", "a", [*NAMES, "nobody"]) == starts
    assert lua.call("Lanes.all_tenant_starts", "a") == starts
    assert lua.call("Lanes.all_tenant_starts", "a\x00") == {"": 1}


def test_dedupe_keys_of_tenants_are_separate(lua: Snippets) -> None:
    rows = [
        KeyRow(tenant, key, IDS[0], b"\x00\xff" * 6, until)
        for tenant in ("", *NAMES)
        for key, until in zip(NAMES, (None, FOREVER) * 5, strict=False)
    ]
    lua.call("Dedupe.save", rows)
    places = [[row.tenant, row.key] for row in rows]
    assert lua.call("Dedupe.load", [*places, ["no", "ne"]]) == [*normalized(rows), False]
    lua.call("Dedupe.forget", "a", "a", IDS[1])
    assert lua.call("Dedupe.get", "a", "a") is not None
    lua.call("Dedupe.forget", "a", "a", IDS[0])
    assert lua.call("Dedupe.get", "a", "a") is None
    assert lua.call("Dedupe.get", "a\x00", "a") is not None


def test_trail_is_read_from_both_ends(lua: Snippets) -> None:
    rows = [
        TrailRow(seq, 5, "me", "why\x00", "close", ("a", "a\x00", "b")[seq % 3], str(seq))
        for seq in range(1, 31)
    ]
    for row in rows:
        lua.call("Trail.add", [row._replace(seq=0)])
    for target in (None, "a", "a\x00", "nobody"):
        of = [row for row in rows if target in {None, row.target}][::-1]
        for before in (None, 0, 1, 7, 31, 99):
            page = [row for row in of if before is None or row.seq < before]
            code = "return Trail.page(request.target, request.before, request.limit)"
            asked = {"target": target, "before": before}
            assert normalized(lua.run(code, {**asked, "limit": 4})) == normalized(page[:4])
            assert normalized(lua.run(code, {**asked, "limit": 99})) == normalized(page)
    assert lua.call("Trail.since", 3, 5) == normalized(rows[3:8])
    assert lua.call("Trail.since", 28, 5) == normalized(rows[28:])


def test_replies_are_kept_for_an_hour_and_the_first_one_stays(lua: Snippets) -> None:
    lua.call("Trail.keep_answer", "r\x00", b"\xff\x00")
    lua.call("Trail.keep_answer", "r\x00", b"other")
    lua.now += 3_600_000
    lua.call("Trail.keep_answer", "s", b"")
    assert lua.call("Trail.answer", "r\x00") == normalized(b"\xff\x00")
    assert lua.call("Trail.answer", "s") == ""
    lua.now += 7_200_001
    lua.call("Trail.keep_answer", "t", b"x")
    assert lua.call("Trail.answer", "r\x00") is None


def test_entries_facts_and_leaders_are_returned_as_written(lua: Snippets) -> None:
    entry = {"name": "n\x00", "spec": {"job": {"args": "\x00"}, "every": 5}, "revision": 2}
    lua.call("Declared.save_entry", {**entry, "last_fired": FOREVER})
    lua.call("Declared.save_entry", {"name": "b", "revision": 1, "folded": 3})
    whole = {**entry, "last_fired": FOREVER, "folded": 0, "first_seen_at": 0}
    gone = {"name": "b", "revision": 1, "folded": 3, "first_seen_at": 0}
    assert lua.call("Declared.entry", "n\x00") == whole
    assert sorted(lua.call("Declared.entries"), key=itemgetter("name")) == [gone, whole]
    assert lua.call("Store.leader", "role") is None
    lua.call("Store.set_leader", "role", "me\x00", 7, FOREVER)
    assert lua.call("Store.leader", "role") == {"holder": "me\x00", "term": 7, "until_at": FOREVER}
    assert lua.call("Declared.revision") == 0
    assert lua.call("Declared.bump_revision") == 1
    assert lua.call("Declared.revision") == 1
