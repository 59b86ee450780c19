"""The job table in Lua behaves like the reference, whatever the names and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from headway.core.flow import Head
from headway.core.gates.view import Order
from headway.core.job import FollowUp, JobPolicy
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.stores.ledger.rows import DueFire, GatedStart, JobRow, RunRow
from tests.redis.harness import Snippets
from tests.redis.job_pair import NAMES, WORKERS, Pair, cascade
from tests.redis.normalized import normalized
from tests.servers.redis import GivenRedis, RedisServer

_namespaces = count(1)


@pytest.fixture
def lua(redis_server: RedisServer | GivenRedis) -> Iterator[Snippets]:
    """A separate namespace."""
    snippets = Snippets(redis_server.url, f"jobs-{next(_namespaces)}")
    yield snippets
    snippets.close()


def insert(pair: Pair) -> None:
    rows = [pair.new() for _ in range(pair.draw.choice((1, 3, 70)))]
    sent = [pair.sent(row) for row in rows]
    code = "for i, row in ipairs(request) do request[i] = row.seq end return request"
    got = pair.lua.run(f"Jobs.insert(request) {code}", sent)
    pair.memory.insert(rows)
    assert got == [row.seq for row in rows]


def save(pair: Pair) -> None:
    rows = list(pair.memory.load(pair.draw.sample(pair.ids, min(8, len(pair.ids)))).values())
    for row in rows:
        pair.change(row)
    pair.lua.call("Jobs.save", [pair.sent(row) for row in rows])
    pair.memory.save(rows)


def start_plain(pair: Pair) -> None:
    rows = pair.in_state(State.WAITING)
    worker = pair.draw.choice(WORKERS)
    pair.lua.call("Jobs.start_plain", [row.id for row in rows], worker, 2**40)
    pair.memory.start_plain([row.seq for row in rows], worker, 2**40)


def start_gated(pair: Pair) -> None:
    rows = pair.in_state(State.WAITING)
    members = pair.draw.choice(({}, {"gate": "", "a\x00": "m"}))
    candidate, turn = pair.draw.choice((("", None), ("", None), ("c|", None), ("c|", cascade())))
    starts = [GatedStart(row.seq, members, candidate, turn, 5) for row in rows]
    sent = [
        {**normalized(start), "id": row.id, "members": members}
        for start, row in zip(starts, rows, strict=True)
    ]
    pair.lua.run("Jobs.start_gated(request[1], 'w', 4)", [sent])
    pair.memory.start_gated(starts, "w", 4)


def finish_plain(pair: Pair) -> None:
    rows = pair.in_state(State.RUNNING, 20) + pair.in_state(State.WAITING, 2)
    runs = [(row.id, row.run + pair.draw.choice((0, 0, 1))) for row in rows]
    worker = pair.draw.choice(WORKERS)
    flat = [part for run in runs for part in run]
    code = "return {Jobs.finish_plain(request[1], request[2], request[3])}"
    lanes, gated = pair.lua.run(code, [worker, flat, 77])
    done = pair.memory.finish_plain(worker, runs, 77)
    assert [lane or None for lane in lanes] == done.lanes
    assert gated == done.gated


def promote(pair: Pair) -> None:
    rows = pair.in_state(State.SCHEDULED)
    code = "local found = {} for f in pairs(Jobs.promote(request)) do found[#found + 1] = f - 1 end"
    flows = pair.lua.run(f"{code} return found", [{"id": row.id} for row in rows])
    assert set(flows) == {row.flow for row in rows}
    pair.memory.promote([DueFire(row.seq, row.id, "", row.due_at, row.lane) for row in rows])


def park(pair: Pair) -> None:
    rows, gate = pair.in_state(State.WAITING), pair.draw.choice(NAMES)
    unfit = pair.draw.choice((0, 0, 1, 2, 2**31 - 1))
    pair.lua.call("Jobs.park", [row.id for row in rows], gate, unfit)
    pair.memory.park([row.seq for row in rows], gate, unfit=unfit)


def feed(pair: Pair) -> None:
    rows, gate = pair.in_state(State.PARKED), pair.draw.choice(NAMES)
    amounts = [pair.draw.choice((1, 2**31 - 1)) for _ in rows]
    heads = [_head_of(row) for row in rows]
    pair.lua.call("Jobs.feed", [{"id": head.id} for head in heads], gate, amounts)
    pair.memory.feed(heads, gate, amounts)


def _head_of(row: JobRow) -> Head:
    return Head(
        Order(row.priority, row.due_at, row.seq),
        row.id,
        row.keyed,
        row.ticket,
        (),
        row.run,
        row.attempt,
        row.stage,
        row.subject,
        row.args,
        row.policy,
        row.blocked_ms,
    )


def remove(pair: Pair) -> None:
    gone = [one for one in pair.memory.load(pair.ids) if pair.draw.random() < 0.1]
    runs = {one: pair.memory.load([one])[one].run for one in gone}
    # The script visits every run of a job up to the last; no real job has billions of them.
    gone = [one for one in gone if runs[one] < 100]
    pair.lua.call("Jobs.remove", gone)
    pair.memory.remove(gone)


def add_runs(pair: Pair) -> None:
    rows = [
        RunRow(
            job=row.id,
            run=row.run,
            attempt=1,
            stage="",
            worker="w\x00",
            claimed_at=pair.lua.now,
            handed_at=None,
            ended_at=2**47,
            outcome="lost",
            error="é" * 300,
            members={"a": "b"},
            blocked_ms=1,
            due_at=3,
        )
        for row in pair.memory.load(pair.draw.sample(pair.ids, min(3, len(pair.ids)))).values()
        if 0 < row.run < 100 and row.run not in {one.run for one in _runs_of(pair, row.id)}
    ]
    pair.lua.call("Jobs.add_runs", rows)
    pair.memory.add_runs(rows)


def _runs_of(pair: Pair, job: str) -> list[RunRow]:
    return pair.memory.runs([job]).get(job, [])


def tick(pair: Pair) -> None:
    pair.lua.now += pair.draw.choice((1, 5, 60))
    pair.time.begin()


MOVES = (
    *(insert, save, start_plain, start_gated, finish_plain, promote, park, feed, remove),
    *(add_runs, tick, tick, save, insert, start_plain, promote),
)


def compare_reads(pair: Pair) -> None:
    """Compare everything that can be read."""
    lua, memory, draw = pair.lua, pair.memory, pair.draw
    here = lua.call("Jobs.load", pair.ids)
    there = {one: pair.sent(row) for one, row in memory.load(pair.ids).items()}
    assert (here or {}) == there
    limit = draw.choice((1, 2, 1000))
    for lane in NAMES:
        _compare_lane(pair, lane, limit)
    for gate in NAMES:
        _compare_gate(pair, gate, limit)
    for name in ("expired", "deadlines", "purgeable", "lanes_due"):
        expected = getattr(memory, name)(limit)
        assert lua.call(f"Jobs.{name}", limit) == (
            sorted(expected) if name == "lanes_due" else expected
        )
    for name in ("next_expiry", "next_deadline"):
        assert lua.call(f"Jobs.{name}") == getattr(memory, name)()
    for worker in WORKERS:
        _compare_worker(pair, worker)
    after = draw.choice(("", *pair.ids))
    held = [pair.sent(row) for row in memory.held(after, limit)]
    assert lua.call("Jobs.held", after, limit) == held
    seq = draw.randrange(200)
    assert lua.call("Jobs.arrived", seq, limit) == [
        pair.sent(row) for row in memory.arrived(seq, limit)
    ]
    few = [one for one, row in memory.load(pair.ids).items() if row.run < 100]
    assert lua.call("Jobs.runs", few) == normalized(memory.runs(few))


def _heads(pair: Pair, heads: Any) -> list[Any]:
    return [{**normalized(head), "policy": head.policy + 1} for head in heads]


def _compare_lane(pair: Pair, lane: str, limit: int) -> None:
    lua, memory = pair.lua, pair.memory
    flows = memory.flows_waiting(lane, -1, limit)
    assert lua.call("Jobs.flows_waiting", lane, -1, limit) == [flow + 1 for flow in flows]
    if flows:
        rest = memory.flows_waiting(lane, flows[0], limit)
        assert lua.call("Jobs.flows_waiting", lane, flows[0] + 1, limit) == [f + 1 for f in rest]
    for flow in flows:
        heads = memory.heads(flow, limit)
        assert lua.call("Jobs.heads", flow + 1, limit) == _heads(pair, heads)
        assert lua.call("Jobs.waiting_ids", flow + 1, limit) == [head.id for head in heads]
        counted = lua.call("Jobs.waiting_count", flow + 1, limit)
        assert counted == memory.waiting_counts(lane, [flow], limit)[flow]
        for head in heads[:2]:
            place = lua.call("Jobs.place", flow + 1, head.order, 1000)
            assert place == memory.place(flow, head.order, 1000)
    due = [memory._rows[seq].id for seq in memory._due(lane, limit)]
    assert [row["id"] for row in lua.call("Jobs.due", lane, limit)] == due
    assert lua.call("Jobs.next_due", lane) == memory.next_due([lane])
    assert lua.call("Jobs.oldest_due", lane) == memory.oldest_due([lane]).get(lane)
    entry = [pair.sent(row) for row in memory.of_entry(lane)]
    assert lua.call("Jobs.of_entry", lane) == entry


def _compare_gate(pair: Pair, gate: str, limit: int) -> None:
    lua, memory = pair.lua, pair.memory
    flows = memory.parked_flows(gate, -1, limit)
    assert lua.call("Jobs.parked_flows", gate, -1, limit) == [flow + 1 for flow in flows]
    for flow in flows:
        heads = _heads(pair, memory.parked_heads(gate, flow, limit))
        assert lua.call("Jobs.parked_heads", gate, flow + 1, limit) == heads
        ids = lua.call("Jobs.parked_ids", gate, flow + 1, limit)
        assert ids == memory.parked_ids(gate, [flow], limit)[flow]
        order = normalized(memory.parked_order(gate, flow))
        assert lua.call("Jobs.parked_order", gate, flow + 1) == order
        orders = lua.call("Jobs.parked_orders", gate, [flow + 1])
        # A table with the key 1 alone is a list in JSON.
        assert orders in ([order], {flow + 1: order})
        assert normalized(memory.parked_orders(gate, [flow])[flow]) == order
    for flow in pair.flows:
        tickets = [[normalized(order), n] for order, n in memory.tickets(gate, flow)]
        assert lua.call("Jobs.tickets", gate, flow + 1) == tickets
    assert lua.call("Jobs.parked_count", gate, limit) == memory.parked_counts([gate], limit)[gate]
    for most in (0, 1, 2**31 - 1):
        assert lua.call("Jobs.unfit_at", gate, most, limit) == memory.unfit_at(gate, most, limit)
    assert lua.call("Jobs.parked_gates", gate, limit) == memory.parked_gates(gate, limit)


def _compare_worker(pair: Pair, worker: str) -> None:
    lua, memory = pair.lua, pair.memory
    held = normalized(memory.held_by(worker))
    names = ("id", "run", "request", "state", "cancel_requested")
    here = [{name: row[name] for name in names} for row in lua.call("Jobs.held_by", worker)]
    assert here == held
    assert lua.call("Jobs.held_count", worker) == memory.held_counts([worker])[worker] == len(held)
    taken = [pair.sent(row) for row in memory.taken_by(worker, 2**40)]
    assert lua.call("Jobs.taken_by", worker, 2**40) == taken


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(3))
def test_every_query_is_answered_like_the_reference(lua: Snippets, seed: int) -> None:
    pair = Pair(lua, seed)
    insert(pair)
    for _ in range(20):
        pair.draw.choice(MOVES)(pair)
        compare_reads(pair)


def test_removed_jobs_leave_only_numbers(lua: Snippets) -> None:
    pair = Pair(lua, 1)
    for move in (insert, start_gated, start_plain, park, feed, insert, finish_plain):
        move(pair)
    before = set(Snippets.contents(lua))
    lua.call("Jobs.remove", pair.ids)
    left = {key.partition("}:")[2] for key in lua.contents()}
    assert len(before) > 5
    assert left == {"facts", "numbers"}


def test_equal_policies_share_a_number_and_are_returned_completely(lua: Snippets) -> None:
    plain = JobPolicy()
    other = JobPolicy(
        retry=RetryPolicy(attempts=2, base_ms=1, factor=0.1 + 0.2, cap_ms=2**40, jitter="none"),
        timeout_ms=5,
        reconcile="ask\x00",
        on_final=FollowUp(kind="alert", lane="l|", states=(State.DEAD, State.CANCELLED)),
        cascade=True,
    )
    assert [lua.call("Jobs.policy_number", one) for one in (plain, other, plain, other)] == [
        *(1, 2, 1, 2)
    ]
    for number, policy in ((1, plain), (2, other)):
        assert lua.call("Jobs.policy", number) == normalized(policy)


def test_listings_walk_both_ways_from_any_place(lua: Snippets) -> None:
    pair = Pair(lua, 2)
    for _ in range(4):
        insert(pair)
        save(pair)
        remove(pair)
    rows = sorted(pair.memory.load(pair.ids).values(), key=lambda row: row.seq)
    for newest in (False, True):
        ordered = rows[::-1] if newest else rows
        for after in (None, 0, 5, 64, 65, 1000):
            behind = [
                row.id
                for row in ordered
                if after is None or (row.seq < after if newest else row.seq > after)
            ]
            code = "return Jobs.walk(request[1], request[2], request[3])"
            assert lua.run(code, [after, 3, newest]) == behind[:3]
            assert lua.run(code, [after, 9_999, newest]) == behind
        row = next(row for row in rows if row.subject)
        about = [r.id for r in ordered if (r.tenant, r.subject) == (row.tenant, row.subject)]
        code = "return Jobs.about(request[1], request[2], nil, 9999, request[3])"
        assert lua.run(code, [row.tenant, row.subject, newest]) == about
        dead = [row.id for row in ordered if row.state is State.DEAD]
        code = "return Jobs.ended_badly('dead', nil, 9999, request)"
        assert lua.run(code, newest) == dead
        awaiting = [row.id for row in ordered if row.state is State.AWAITING]
        code = "return Jobs.awaiting(nil, 9999, request)"
        assert lua.run(code, newest) == awaiting


def test_more_than_four_thousand_rows_fit_one_call(lua: Snippets) -> None:
    pair = Pair(lua, 3)
    rows = [pair.new() for _ in range(4_500)]
    lua.call("Jobs.insert", [pair.sent(row) for row in rows])
    ids = [row.id for row in rows]
    assert lua.run(
        "local n = 0 for _ in pairs(Jobs.load(request)) do n = n + 1 end return n", ids
    ) == len(ids)
    waiting = [row.id for row in rows if row.state is State.WAITING]
    lua.call("Jobs.start_plain", waiting, "w", 1)
    assert lua.call("Jobs.held_count", "w") == len(waiting)


def test_plain_end_overrides_the_report_of_an_earlier_run(lua: Snippets) -> None:
    pair = Pair(lua, 5)
    row = pair.new()
    row.state, row.care = State.WAITING, False
    lua.call("Jobs.insert", [pair.sent(row)])
    change = "local row = Jobs.load({request})[request] row.outcome = 'failed' Jobs.save({row})"
    lua.run(change, row.id)
    lua.call("Jobs.start_plain", [row.id], "w", 1)
    lua.call("Jobs.finish_plain", "w", [row.id, 1], 5)
    assert lua.call("Jobs.load", [row.id])[row.id]["outcome"] == "succeeded"


def test_job_is_found_at_its_new_time_when_only_that_changed(lua: Snippets) -> None:
    pair = Pair(lua, 6)
    row = pair.new()
    row.state, row.expires_at = State.WAITING, lua.now + 5
    lua.call("Jobs.insert", [pair.sent(row)])
    set_field = "local row = Jobs.load({request[1]})[request[1]] row[request[2]] = request[3]"
    for fields, question in (
        ((("expires_at", lua.now + 9),), "next_expiry"),
        ((("state", "awaiting"), ("deadline_at", 4), ("deadline_at", 9)), "next_deadline"),
    ):
        for name, value in fields:
            lua.run(f"{set_field} Jobs.save({{row}})", [row.id, name, value])
        assert lua.call(f"Jobs.{question}") == fields[-1][1]
    for value in (4, lua.now):
        lua.run(f"{set_field} row.state = 'dead' Jobs.save({{row}})", [row.id, "purge_at", value])
    lua.now -= 1
    assert lua.call("Jobs.purgeable", 9) == []
    lua.now += 1
    assert lua.call("Jobs.purgeable", 9) == [row.id]


def test_unfit_job_parked_by_an_earlier_version_is_put_back(lua: Snippets) -> None:
    pair = Pair(lua, 9)
    row = pair.new()
    # Without an amount, as versions that did not order unfit jobs left it.
    row.state, row.parked_at, row.unfit, row.ticket_amount = State.PARKED, "gate", True, 0
    lua.call("Jobs.insert", [pair.sent(row)])
    assert lua.call("Jobs.unfit_at", "gate", 1, 9) == [row.id]
    row.unfit = False
    lua.call("Jobs.save", [pair.sent(row)])
    assert lua.call("Jobs.unfit_at", "gate", 1, 9) == []
    assert lua.call("Jobs.parked_ids", "gate", row.flow + 1, 9) == [row.id]


@pytest.mark.parametrize("ticket", [None, "gate"])
@pytest.mark.parametrize("gated", [False, True])
def test_started_job_does_not_expire(lua: Snippets, gated: bool, ticket: str | None) -> None:
    pair = Pair(lua, 8)
    row = pair.new()
    row.state, row.expires_at, row.ticket = State.WAITING, lua.now, ticket
    lua.call("Jobs.insert", [pair.sent(row)])
    assert lua.call("Jobs.expired", 9) == [row.id]
    if gated:
        start = {**normalized(GatedStart(1, {"gate": ""}, "", None, 0)), "id": row.id}
        lua.run("Jobs.start_gated(request[1], 'w', 4)", [[{**start, "members": {"gate": ""}}]])
    else:
        lua.call("Jobs.start_plain", [row.id], "w", 4)
    assert lua.call("Jobs.expired", 9) == []
    assert lua.call("Jobs.next_expiry") is None


@pytest.mark.parametrize("members", [{}, {"other": "m"}])
def test_start_forgets_what_an_earlier_run_took(lua: Snippets, members: dict[str, str]) -> None:
    pair = Pair(lua, 7)
    row = pair.new()
    row.state, row.keyed, row.care = State.WAITING, (), False
    lua.call("Jobs.insert", [pair.sent(row)])
    pair.memory.insert([row])
    row.members, row.gated, row.candidate, row.run = {"gate": "a"}, True, "c", 1
    lua.call("Jobs.save", [pair.sent(row)])
    pair.memory.save([row])
    start = GatedStart(row.seq, members, "", None, 9)
    sent = {**normalized(start), "id": row.id, "members": members}
    lua.run("Jobs.start_gated(request[1], 'w', 4)", [[sent]])
    pair.memory.start_gated([start], "w", 4)
    compare_reads(pair)
