"""Claims that skip flows at full gates, or leave flows unread, decide as if they examined all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

import headway as hw
from headway.contract.outcomes import Succeeded
from headway.core.claim import _Round  # pyright: ignore[reportPrivateUsage]
from headway.core.flow import FlowView
from headway.core.gates.spec import GateSpec, GateUse
from headway.stores.ledger import lane_claim
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.ledger.lane_claim import LaneClaim
from headway.stores.ledger.start_writer import StartWriter
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.conformance.ordering import fair_lane
from headway.testing.conformance.rig import Rig
from headway.testing.dump import compare, dump
from headway.testing.jobs import use_of
from tests.depth import DEPTH
from tests.redis.claim_cases import World, decided, world

LINE = hw.Slots("line", 3)
POOL = hw.Pool("pool", {"a": 2, "b": 1})
RATE = hw.Rate("rate", 2, "10s")
HOURS = hw.Hours("hours", "08:00-18:00")
PHONE = hw.Slots("phone:{phone}", 1)
GATES = (LINE, POOL, RATE, HOURS)
TENANTS = ("acme", "beta", "core", "delta")
CLOSED = ("line", "pool", "pool/a", "rate", "tenant:beta", "kind:dial")


def some_gates(drawn: random.Random) -> tuple[GateUse, ...]:
    chosen: list[GateSpec] = drawn.sample(GATES, drawn.randint(0, 3))
    return tuple(use_of(gate, 2 if gate is LINE and drawn.random() < 0.2 else 1) for gate in chosen)


async def play(seed: int, moves: int, most: int = 6, phones: int = 0) -> tuple[list[Any], Any]:
    """Play a random history; return the replies of its claims, and the final store content.

    Args:
        most: maximum number of jobs that a claim requests.
        phones: number of keyed gates of which half of the jobs need one.
    """
    drawn, clock = random.Random(seed), FakeClock()
    rig = Rig(MemoryStore(clock=clock), clock)
    await rig.declare(*GATES, PHONE)
    worker = await fair_lane(rig, acme=3)
    running: list[Any] = []
    replies: list[Any] = []
    for turn in range(moves):
        # With keyed gates, many flows wait from the start.
        move = 0 if phones and turn < 50 else drawn.random()
        if move < 0.3:
            gates, tenant = some_gates(drawn), drawn.choice(TENANTS)
            kind = drawn.choice(("dial", "text"))
            if phones and drawn.random() < 0.5:
                gates = (*gates, use_of(PHONE, phone=str(drawn.randrange(phones))))
            await rig.add_many(drawn.randint(1, 4), tenant=tenant, kind=kind, gates=gates)
        elif move < 0.6:
            n = drawn.randint(1, most)
            reply = await worker.ask(n, free=drawn.randint(0, n))
            running += reply.jobs
            told = [(job.id, dict(job.members), job.candidate) for job in reply.jobs]
            replies.append((told, reply.next_at, reply.again))
        elif move < 0.8 and running:
            one = running.pop(drawn.randrange(len(running)))
            await worker.settle(Succeeded(one.id, one.run))
        elif move < 0.86:
            until = clock() + drawn.randint(1, 20_000) if drawn.random() < 0.5 else None
            await rig.close_gate(drawn.choice(CLOSED), until)
        elif move < 0.92:
            await rig.open_gate(drawn.choice(CLOSED))
        elif move < 0.96:
            await rig.cap("line", drawn.randint(0, 5))
        else:
            clock.advance(drawn.choice((500, 9_000, 6 * 3_600_000)))
            await worker.beat(*running)
    return replies, await dump(rig.store)


@pytest.mark.parametrize("seed", range(40 * DEPTH))
async def test_skipping_full_flows_makes_no_difference(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies, stored = await play(seed, 150)
    assert any(jobs for jobs, _, _ in replies)
    monkeypatch.setattr(GateCache, "full_gate", lambda _self, _flow, _known: None)
    expected, as_stored = await play(seed, 150)
    assert replies == expected
    assert compare(stored, as_stored) == []


@pytest.mark.parametrize("seed", range(40 * DEPTH))
async def test_leaving_flows_unread_makes_no_difference(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A full claim does not examine all flows, so it may miss that one of them is closed, and opens
    # earlier: what follows from this may differ.
    monkeypatch.setattr(StartWriter, "_blocked", lambda *_: 0)
    monkeypatch.setattr(lane_claim, "MANY_FLOWS", 1)
    unread: list[bool] = []
    leave = LaneClaim._leave_unread

    def watched(claim: LaneClaim, views: Sequence[FlowView], n: int, free: int) -> None:
        leave(claim, views, n, free)
        unread.extend(view.unread for view in views)

    monkeypatch.setattr(LaneClaim, "_leave_unread", watched)
    replies, stored = await play(seed, 180, most=2, phones=3)
    assert any(unread)
    monkeypatch.setattr(LaneClaim, "_leave_unread", lambda *_: None)
    expected, as_stored = await play(seed, 180, most=2, phones=3)
    assert [_unless_again(*one) for one in replies] == [_unless_again(*one) for one in expected]
    assert compare(stored, as_stored) == []


def _unless_again(jobs: Any, next_at: int | None, again: bool) -> Any:
    return jobs, None if again else next_at, again


def test_round_that_ends_early_decides_as_if_it_examined_every_flow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = random.Random(DEPTH)
    worlds = [world(drawn) for _ in range(3_000)]
    ended: list[bool] = []
    ends = _Round.is_over

    def is_over(one: _Round, flows: Sequence[FlowView]) -> bool:
        ended.append(bool(one.queue) and ends(one, flows))
        return ended[-1]

    monkeypatch.setattr(_Round, "is_over", is_over)
    early = [decided(one) for one in worlds]
    assert 100 < sum(ended) < len(ended) - 100
    monkeypatch.setattr(_Round, "is_over", lambda *_: False)
    assert early == [decided(one) for one in worlds]


def test_flows_that_may_reserve_permits_are_examined_in_their_order() -> None:
    def flow(number: int, **shared: int) -> World:
        head = {"order": [5, 10, number], "id": f"{number}", "keyed": [], "ticket": None}
        return {
            "flow": number,
            "tenant": "",
            "shared": [*shared.items()],
            "gated": True,
            "heads": [{**head, "candidates": []}],
            "more": False,
        }

    def gate(name: str, free: int) -> World:
        rest = {"members": [], "strategy": "least_used", "last": ""}
        return {"name": name, "kind": "slots", "most": 9, "free": free, **rest}

    gates = {"full": 0, "line": 0, "seats": 0, "desk": 1}
    answer = decided(
        {
            # The third takes the desk first, so the fourth, which needs it, too, reserves nothing.
            "flows": [
                flow(1, full=1),
                flow(4, seats=2, desk=1),
                flow(3, line=2, desk=2),
                flow(2, full=1),
            ],
            "gates": {name: gate(name, free) for name, free in gates.items()},
            "parked": [],
            "n": 9,
            "free": 9,
            "fairness": None,
        }
    )
    assert answer["reserved"] == {"line": ["3", 2], "desk": ["3", 2]}
