"""A flow that waits at a full gate is skipped with the same effect as checking all its gates."""

from __future__ import annotations

import random
from typing import Any

import pytest

import headway as hw
from headway.contract.outcomes import Succeeded
from headway.core.gates.spec import GateSpec, GateUse
from headway.stores.ledger.gate_cache import GateCache
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.conformance.ordering import fair_lane
from headway.testing.conformance.rig import Rig
from headway.testing.dump import compare, dump
from headway.testing.jobs import use_of
from tests.depth import DEPTH

LINE = hw.Slots("line", 3)
POOL = hw.Pool("pool", {"a": 2, "b": 1})
RATE = hw.Rate("rate", 2, "10s")
HOURS = hw.Hours("hours", "08:00-18:00")
GATES = (LINE, POOL, RATE, HOURS)
TENANTS = ("acme", "beta", "core", "delta")
CLOSED = ("line", "pool", "pool/a", "rate", "tenant:beta", "kind:dial")


def some_gates(drawn: random.Random) -> tuple[GateUse, ...]:
    chosen: list[GateSpec] = drawn.sample(GATES, drawn.randint(0, 3))
    return tuple(use_of(gate, 2 if gate is LINE and drawn.random() < 0.2 else 1) for gate in chosen)


async def play(seed: int, moves: int) -> tuple[list[Any], Any]:
    """Play a random history; return the replies of its claims, and the final store content."""
    drawn, clock = random.Random(seed), FakeClock()
    rig = Rig(MemoryStore(clock=clock), clock)
    await rig.declare(*GATES)
    worker = await fair_lane(rig, acme=3)
    running: list[Any] = []
    replies: list[Any] = []
    for _ in range(moves):
        move = drawn.random()
        if move < 0.3:
            gates, tenant = some_gates(drawn), drawn.choice(TENANTS)
            kind = drawn.choice(("dial", "text"))
            await rig.add_many(drawn.randint(1, 4), tenant=tenant, kind=kind, gates=gates)
        elif move < 0.6:
            n = drawn.randint(1, 6)
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
