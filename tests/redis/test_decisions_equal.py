"""The scripts decide what `core` decides: the same inputs, the same results."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.core.cascade import Answer, Cascade, in_turn
from headway.core.fairness import share
from headway.core.gates.hours import is_open, next_opening
from headway.core.gates.pool import choose
from headway.core.gates.spec import STRATEGIES, GateKind, GateSpec, GateUse
from headway.core.gates.view import MemberView
from headway.core.job import DEFAULT_POLICY, FollowUp, body_hash, derived_id, ids_after
from headway.core.retry import JITTERS, RetryPolicy
from headway.core.state import State
from headway.stores.ledger.gaterows import GateTemplates, TemplateRow
from headway.stores.ledger.insert import follow_up, reconcile_job
from headway.stores.ledger.rows import JobRow
from tests.redis.claim_cases import DECIDE, World, decided, world
from tests.redis.harness import Snippets
from tests.servers.redis import GivenRedis, RedisServer

ENGINE = (
    "rules.claiming",
    "rules.fairness",
    "engine.lane_share",
    "rules.cascade",
    "rules.pool",
    "rules.hours",
    "engine.gate_names",
    "engine.new_jobs",
    "engine.new_jobs",
    "rules.retry_policy",
    "base.write",
    "base.time",
)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@pytest.fixture(scope="module")
def lua(redis_server: RedisServer | GivenRedis) -> Iterator[Snippets]:
    snippets = Snippets(redis_server.url, "decisions", ENGINE)
    yield snippets
    snippets.close()


def maps(value: Any) -> Any:
    """Lua returns an empty table as a list, so empty maps are converted on both sides."""
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return {key: maps(one) for key, one in table.items()} or []
    if isinstance(value, list | tuple):
        return [maps(one) for one in cast("list[Any]", value)]
    return value


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(20))
def test_random_worlds_are_decided_as_core_decides_them(lua: Snippets, seed: int) -> None:
    random = Random(seed)
    worlds = [world(random) for _ in range(100)]
    answers: list[World] = lua.run(DECIDE, worlds)
    for one, answer in zip(worlds, answers, strict=True):
        assert maps(answer) == maps(decided(one)), one


def test_random_worlds_reach_every_part_of_a_decision() -> None:
    random = Random(0)
    answers = [decided(world(random)) for _ in range(500)]
    assert sum(bool(one["starts"]) for one in answers) > 100
    assert sum(bool(one["parks"]) for one in answers) > 100
    assert sum(bool(one["moved"]) for one in answers) > 10
    assert sum(bool(one["closed"]) for one in answers) > 100
    assert sum(one["again"] for one in answers) > 50
    for one in answers:
        examined = [job for job, *_ in (*one["starts"], *one["parks"], *one["moved"])]
        assert len(set(examined)) == len(examined)
    assert any(start[2] for one in answers for start in one["starts"])
    assert any(start[3] for one in answers for start in one["starts"])


def test_parked_job_follows_the_first_of_two_with_tickets_once(lua: Snippets) -> None:
    def head(seq: int, ticket: str | None) -> World:
        keyed = [["a", 1], ["b", 1]]
        order = [5, 10, seq]
        return {"order": order, "id": str(seq), "keyed": keyed, "ticket": ticket, "candidates": []}

    def gate(name: str, free: int) -> World:
        rest = {"members": [], "strategy": STRATEGIES[0], "last": ""}
        return {"name": name, "kind": "slots", "most": 2, "free": free, **rest}

    given = {
        "flows": [
            {
                "flow": 1,
                "tenant": "",
                "shared": [],
                "gated": False,
                "heads": [head(1, "a"), head(2, "a")],
                "more": False,
            }
        ],
        "gates": {"a": gate("a", 2), "b": gate("b", 0)},
        "parked": [[1, "a", [head(3, None), head(4, None)]]],
        "n": 9,
        "free": 9,
        "fairness": None,
    }
    expected = decided(given)
    assert expected["parks"] == [["1", 1, "b", 0], ["2", 1, "b", 0]]
    assert expected["moved"] == [["3", 1, "b", 0], ["4", 1, "b", 0]]
    assert not expected["again"]
    (answer,) = lua.run(DECIDE, [given])
    assert maps(answer) == maps(expected)


@given(
    policy=st.builds(
        RetryPolicy,
        base_ms=st.integers(1, 10**6),
        factor=st.floats(1, 1000),
        cap_ms=st.integers(1, 10**11),
        jitter=st.sampled_from(JITTERS),
    ),
    attempt=st.integers(1, 200),
    seed=NAMES,
)
def test_retry_waits_equally_long(
    lua: Snippets, policy: RetryPolicy, attempt: int, seed: str
) -> None:
    retry = {
        "attempts": policy.attempts,
        "base_ms": policy.base_ms,
        "factor": policy.factor,
        "cap_ms": policy.cap_ms,
        "jitter": policy.jitter,
    }
    text = """
    local retry, attempt, seed = unpack(request)
    return { RetryPolicy.delay_ms(retry, attempt, seed), RetryPolicy.exhausted(retry, attempt) }
    """
    expected = [policy.delay_ms(attempt, seed), policy.exhausted(attempt)]
    assert lua.run(text, [retry, attempt, seed]) == expected


@given(parts=st.lists(NAMES | st.integers(0, 2**53), min_size=1, max_size=4))
def test_derived_id_is_the_same(lua: Snippets, parts: list[str | int]) -> None:
    mine = derived_id(*parts)
    assert lua.run("return NewJobs.derived_id(request)", parts) == mine
    assert lua.run("return NewJobs.ids_after(request, 3)", mine) == ids_after(mine, 3)


@given(
    names=st.tuples(NAMES, NAMES, NAMES),
    subject=st.none() | NAMES,
    args=st.binary(max_size=40),
)
def test_body_has_the_same_hash(
    lua: Snippets, names: tuple[str, str, str], subject: str | None, args: bytes
) -> None:
    text = "return NewJobs.body_hash(request[1], request[2], request[3], request[4], request[5])"
    found: str = lua.run(text, [*names, subject, args])
    assert found.encode("utf-8", "surrogateescape") == body_hash(*names, subject, args)


@given(
    weights=st.lists(st.integers(1, 300), min_size=1, max_size=6),
    n=st.integers(1, 1000),
    turn=st.integers(1, 2**53 - 1),
)
def test_claim_is_shared_between_lanes_in_the_same_way(
    lua: Snippets, weights: list[int], n: int, turn: int
) -> None:
    lanes = [(f"lane {place}", weight) for place, weight in enumerate(weights)]
    found = lua.run("return LaneShare.share(request[1], request[2], request[3])", [lanes, n, turn])
    assert found == [list(one) for one in share(lanes, n, turn)]


@pytest.mark.parametrize("total", [*range(1, 300, 13), *range(250, 5_000, 250)])
def test_cycle_of_any_length_is_mixed_in_the_same_way(lua: Snippets, total: int) -> None:
    lanes = [("a", total - total // 3), ("b", total // 3)][: 1 + (total > 2)]
    text = """
    local shares = {}
    for turn = 1, request[2] do
      shares[turn] = LaneShare.share(request[1], 1, turn)
    end
    return shares
    """
    expected = [[list(one) for one in share(lanes, 1, turn)] for turn in range(1, 101)]
    assert lua.run(text, [lanes, 100]) == expected


@given(name=st.lists(st.sampled_from(["{candidate}", "%", "a", "{"])), candidate=NAMES)
def test_gate_in_a_candidates_turn_has_the_same_name(
    lua: Snippets, name: list[str], candidate: str
) -> None:
    use = GateUse(name="".join(name), template="t")
    text = "return Cascade.in_turn({ name = request[1], template = 't' }, request[2]).name"
    assert lua.run(text, [use.name, candidate]) == in_turn(use, candidate).name


@given(
    left=st.lists(st.sampled_from("abcd"), unique=True, max_size=4),
    turn=st.sampled_from(["", "a", "c", "z"]),
)
def test_cascade_moves_on_in_the_same_way(lua: Snippets, left: list[str], turn: str) -> None:
    text = """
    local cascade = { left = request[1], turn = request[2], asked = {} }
    local over = Cascade.end_(cascade, 'declined', 7, 'busy')
    local begun = Cascade.begin(over, 'd')
    return { Cascade.order(cascade), over.left, over.turn, over.asked[1].candidate,
      Cascade.exhausted(over), begun.turn, #begun.asked, #cascade.asked }
    """
    cascade = Cascade(left=tuple(left), turn=turn)
    over = cascade.end(Answer.DECLINED, 7, "busy")
    begun = over.begin("d")
    assert lua.run(text, [left, turn]) == [
        list(cascade.order()),
        list(over.left),
        over.turn,
        over.asked[0].candidate,
        over.exhausted,
        begun.turn,
        len(begun.asked),
        len(cascade.asked),
    ]


@given(
    members=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=5),
    strategy=st.sampled_from(STRATEGIES),
    amount=st.integers(1, 3),
    last=st.sampled_from(["", "m0", "m2", "gone"]),
)
def test_pool_chooses_the_same_member(
    lua: Snippets,
    members: list[tuple[int, int]],
    strategy: Any,
    amount: int,
    last: str,
) -> None:
    views = [
        MemberView(name=f"m{place}", capacity=max(capacity, used), used=used, free=capacity - used)
        for place, (capacity, used) in enumerate(members)
    ]
    told = [
        {"name": one.name, "capacity": one.capacity, "used": one.used, "free": one.free}
        for one in views
    ]
    text = """
    local found = Pool.choose(request[1], request[2], request[3], request[4])
    return found and found.name or false
    """
    chosen = choose(views, strategy, amount, last)
    expected = chosen.name if chosen else False
    assert lua.run(text, [told, strategy, amount, last]) == expected


@given(moments=st.lists(st.integers(0, 60), unique=True, max_size=12), at=st.integers(0, 60))
def test_hours_are_open_and_open_next_at_the_same_times(
    lua: Snippets, moments: list[int], at: int
) -> None:
    ordered = sorted(moments)
    pairs = tuple(zip(ordered[::2], ordered[1::2], strict=False))
    text = """
    local opens, at = unpack(request)
    return { Hours.is_open(opens, at), Hours.next_opening(opens, at) or false }
    """
    opening = next_opening(pairs, at)
    expected = [is_open(pairs, at), False if opening is None else opening]
    assert lua.run(text, [pairs, at]) == expected


@given(
    gate=st.lists(st.sampled_from(["a", ":", "é", "/m", "/é", "{", "%", "lane:"]), min_size=1),
    names=st.sets(
        st.sampled_from(["{x}", "a{x}", "{x}a", "{x}{y}", "a:{x}", "{x}:a", "é{x}", "a.", "a"])
    ),
    pools=st.sets(st.sampled_from(["{p}", "a{p}", "é{p}é", "p"])),
)
@example(gate=["é"], names={"{x}{y}"}, pools=set())
@example(gate=["éxab"], names={"é{x}", "{x}ab"}, pools=set())
@example(gate=["éx/m"], names=set(), pools={"é{p}", "{pqr}"})
def test_name_belongs_to_the_same_declared_gate(
    lua: Snippets, gate: list[str], names: set[str], pools: set[str]
) -> None:
    name = "".join(gate)
    specs = [GateSpec(name=one, kind=GateKind.SLOTS, shared=False) for one in names]
    members = (("m", 1), ("é", 2))
    specs += [
        GateSpec(name=one, kind=GateKind.POOL, shared=False, members=members) for one in pools
    ]
    rows = GateTemplates((spec.name, TemplateRow(spec=spec)) for spec in specs)
    told = {
        spec.name: {"spec": {"kind": str(spec.kind), "members": spec.members}} for spec in specs
    }
    text = """
    local done, place = pcall(GateNames.place_of, request[1], request[2])
    return done and { place.template, place.pool } or place.refused.error
    """
    try:
        expected: object = list(rows.place_of(name))
    except Exception as error:  # noqa: BLE001  (names of errors are compared)
        expected = type(error).__name__
    assert lua.run(text, [told, name]) == expected


@given(
    reason=st.text(st.characters(exclude_categories=["Cs"]), max_size=30), life=st.integers(1, 9)
)
def test_follow_up_of_a_job_is_the_same_job(lua: Snippets, reason: str, life: int) -> None:
    row = JobRow(
        id=derived_id("cause"),
        lane="calls",
        tenant="acme",
        kind="call",
        subject="+1",
        stage="",
        priority=1,
        due_at=2,
        args=b"{}",
        flow=3,
        policy=4,
        state=State.DEAD,
        created_at=5,
        life=life,
        run=6,
        reconciles=2,
        reason=reason,
    )
    text = """
    local follow = NewJobs.follow_up(request, { kind = 'alert', states = { 'dead' } })
    local asked = NewJobs.reconcile_job(request, 'ask')
    return { follow.id, follow.args, follow.lane, follow.subject, asked.id, asked.args, asked.kind }
    """
    told = {
        "id": row.id,
        "lane": row.lane,
        "tenant": row.tenant,
        "subject": row.subject,
        "state": str(row.state),
        "reason": reason,
        "life": life,
        "run": row.run,
        "reconciles": row.reconciles,
    }
    follow = follow_up(row, FollowUp(kind="alert"))
    asked = reconcile_job(row, "ask")
    assert lua.run(text, told) == [
        follow.id,
        follow.args.decode(),
        follow.lane,
        follow.subject,
        asked.id,
        asked.args.decode(),
        asked.kind,
    ]


def test_policies_of_follow_ups_are_those_of_the_ledger(lua: Snippets) -> None:
    row = {"id": "x", "lane": "l", "tenant": "", "state": "dead", "reason": "", "life": 1, "run": 1}
    text = """
    local asked = NewJobs.reconcile_job(request, 'ask')
    return { NewJobs.DEFAULT_POLICY, asked.policy }
    """
    found = lua.run(text, {**row, "reconciles": 0})
    asked = reconcile_job(_plain_row(), "ask").policy
    for told, policy in zip(found, (DEFAULT_POLICY, asked), strict=True):
        retry = told.pop("retry")
        for field, value in retry.items():
            assert getattr(policy.retry, field) == value
        for field, value in told.items():
            assert getattr(policy, field) == value
        assert len(retry) == 5
        assert len(told) == 6


def _plain_row() -> JobRow:
    return JobRow(
        id="x",
        lane="l",
        tenant="",
        kind="k",
        subject=None,
        stage="",
        priority=1,
        due_at=2,
        args=b"",
        flow=1,
        policy=1,
        state=State.AWAITING,
        created_at=1,
    )
