"""Two tables of jobs, the reference and the scripts, that get the same calls."""

from __future__ import annotations

import random
from typing import Any

from headway.core.cascade import Answer, Asked, Cascade
from headway.core.gates.spec import GateUse
from headway.core.job import JobPolicy, derived_id
from headway.core.state import FINAL, HELD, State
from headway.stores.ledger.gaterows import FOREVER
from headway.stores.ledger.rows import FlowKey, JobRow
from headway.stores.memory.jobs import MemoryJobs
from headway.stores.memory.journal import Journal
from headway.stores.memory.records import MemoryKeys, MemorySignals
from headway.stores.memory.timing import StepTime
from tests.redis.harness import Snippets
from tests.redis.normalized import normalized

NAMES = ("a", "a|b", "{}", "ü\U0001f600", "a\x00", "a\x00\x01", "\xff", "z" * 512, "a\n'\"")
WORKERS = ("w", "w\x00", "w" * 500)


class Pair:
    """The reference and the scripts, called alike; flow numbers start at 0 there and at 1 here."""

    def __init__(self, lua: Snippets, seed: int) -> None:
        self.lua = lua
        self.draw = random.Random(seed)
        self.time = StepTime(lambda: lua.now)
        journal = Journal()
        self.memory = MemoryJobs(
            self.time, journal, MemoryKeys(journal), MemorySignals(self.time, journal)
        )
        self.time.begin()
        self.ids: list[str] = []
        self.flows = [self._flow(lane) for lane in NAMES[:6] for _ in range(2)]
        self.policy = self.memory.policy_number(JobPolicy())
        assert lua.call("Jobs.policy_number", JobPolicy()) == self.policy + 1

    def _flow(self, lane: str) -> int:
        uses = tuple(
            GateUse(name=name, template=name, amount=amount, hold="run", shared=True, zone=zone)
            for name, amount, zone in (("x", 1, "UTC"), (self.draw.choice(NAMES), 2**31 - 1, None))
        )
        key = FlowKey(lane, self.draw.choice(NAMES), self.draw.choice(NAMES), uses)
        flow = self.memory.flow_number(key)
        assert self.lua.call("Jobs.flow_number", key) == flow + 1
        assert self.lua.call("Jobs.flow", flow + 1) == normalized(key)
        return flow

    def sent(self, row: JobRow) -> dict[str, Any]:
        """Return a row as the scripts represent it."""
        return {**normalized(row), "flow": row.flow + 1, "policy": row.policy + 1}

    def new(self) -> JobRow:
        """Return a job with a value in every field."""
        draw = self.draw
        flow = self.memory.flow(number := draw.choice(self.flows))
        row = JobRow(
            id=derived_id("table", self.lua.keys[0], len(self.ids)),
            lane=flow.lane,
            tenant=flow.tenant,
            kind=flow.kind,
            subject=draw.choice((None, *NAMES)),
            stage=draw.choice(("", "dial")),
            priority=draw.choice((0, 1, 512, 2**32 - 1)),
            due_at=draw.choice((0, self.lua.now - 1, self.lua.now, self.lua.now + 50, FOREVER - 1)),
            args=draw.choice((b"{}", bytes(range(256)), b"x" * 257, b"y" * 9_000)),
            flow=number,
            policy=self.policy,
            state=draw.choice((State.WAITING, State.WAITING, State.SCHEDULED)),
            created_at=self.lua.now,
        )
        self.ids.append(row.id)
        if draw.random() < 0.5:
            self._adorn(row)
        return row

    def _adorn(self, row: JobRow) -> None:
        draw = self.draw
        row.expires_at = draw.choice((None, 0, self.lua.now + 10, FOREVER))
        row.entry = draw.choice((None, *NAMES))
        row.fired_at = None if row.entry is None else draw.choice((None, 5, FOREVER))
        row.keyed = (GateUse(name=draw.choice(NAMES), template="{x}", amount=2, hold="run"),)
        row.care = True

    def change(self, row: JobRow) -> None:
        """Move a row anywhere, and fill its fields with other values."""
        draw = self.draw
        row.state = draw.choice(tuple(State))
        row.flow = draw.choice([f for f in self.flows if self._same_place(f, row.flow)])
        row.priority, row.due_at = draw.choice((0, 7)), draw.choice((1, self.lua.now + 3))
        row.worker = draw.choice((None, *WORKERS)) if row.state in HELD else None
        row.last_worker = draw.choice(("", "w1"))
        row.request, row.run = draw.choice((0, 1, 2**40)), draw.choice((0, 1, 3, 2**31))
        row.deadline_at = draw.choice((None, 0, self.lua.now + 5))
        row.purge_at = draw.choice((None, 1, FOREVER)) if row.state in FINAL else None
        row.parked_at = draw.choice(NAMES) if row.state is State.PARKED else None
        row.unfit = row.parked_at is not None and draw.random() < 0.3
        row.ticket = draw.choice((None, *NAMES)) if row.state is State.WAITING else None
        # An earlier version parked unfit jobs without their amount.
        amounts = (1, 2**31 - 1) if row.ticket else (0, 1, 9) if row.unfit else (0,)
        row.ticket_amount = draw.choice(amounts)
        row.members = draw.choice(({}, {"gate": "", "a\x00": "m"}))
        row.cascade = draw.choice((None, cascade()))
        row.outcome = draw.choice(("", "succeeded", "failed"))
        row.result = draw.choice((None, b"", b"\xff\x00", b"r" * 300))
        row.progress = draw.choice((None, b"p" * 5_000))
        row.error, row.reason = draw.choice(("", "e" * 400, "no")), draw.choice(("", "why"))
        row.body, row.life, row.handed_at = b"\x00\xff", draw.choice((1, 2)), draw.choice((None, 9))
        row.reconciles, row.args = draw.choice((-1, 0, 4)), draw.choice((row.args, b"new" * 200))
        row.cancel_requested = row.in_doubt = row.gated = draw.random() < 0.5

    def _same_place(self, flow: int, other: int) -> bool:
        return self.memory.flow(flow)[:3] == self.memory.flow(other)[:3]

    def in_state(self, state: State, most: int = 5) -> list[JobRow]:
        """Return some jobs in a state."""
        rows = [row for row in self.memory.load(self.ids).values() if row.state is state]
        return self.draw.sample(rows, min(most, len(rows)))


def cascade() -> Cascade:
    """Return a cascade with some turns taken, and names that try to break out."""
    asked = Asked(candidate="a\x00", answer=Answer.DECLINED, at=3, reason="no")
    return Cascade(left=("b", "c|", "{d}"), turn="c|", asked=(asked,))
