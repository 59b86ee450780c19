"""Random commands on SQLite and on memory: equal replies, equal dumps, clean audits."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headway.contract.claims import BeatRequest, ClaimReply, ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest, FireRequest
from headway.contract.enqueue import InFlight
from headway.contract.operate import ActRequest, Edit, Verb
from headway.contract.outcomes import (
    Closing,
    Died,
    Failed,
    FoundUnfit,
    GaveBack,
    HandedOver,
    KnownAs,
    NextStage,
    Outcome,
    Released,
    Returned,
    SettleRequest,
    Snoozed,
    Succeeded,
)
from headway.contract.signals import Decided, Signal, SignalKind
from headway.contract.views import (
    EntryView,
    GatesQuery,
    JobsQuery,
    StatsQuery,
    TimetableQuery,
    WhyQuery,
)
from headway.core.job import NewJob
from headway.core.state import State
from tests.machine.pair import Pair
from tests.machine.strategies import (
    DELAYS,
    KEYS,
    LANES,
    NAMES,
    RESOLVED,
    SPECS,
    WORKERS,
    items,
    jobs,
    uses,
)

Run = tuple[str, str, int]


class StoresMachine(RuleBasedStateMachine):
    """Whatever is asked of both, both answer the same."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="headway-machine-"))
        self.pair = Pair(self.folder)
        self.known: list[str] = []
        self.runs: list[Run] = []
        self.requests = dict.fromkeys(WORKERS, 0)
        self.made = 0
        self.acts = 0
        self.steps = 0

    @initialize()
    def declare(self) -> None:
        items = tuple(DeclareGate(spec=spec) for spec in SPECS)
        self.pair.ask(lambda store: store.define(DefineRequest(items=items, author="code")))

    def teardown(self) -> None:
        try:
            self.pair.compare()
        finally:
            self.pair.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # Drawing

    def new_jobs(self, data: st.DataObject, most: int) -> list[NewJob]:
        made: list[NewJob] = []
        for _ in range(data.draw(st.integers(1, most))):
            again = bool(self.known) and data.draw(st.integers(0, 9)) == 0
            if not again:
                self.made += 1
            number = data.draw(st.integers(1, self.made)) if again else self.made
            made.append(data.draw(jobs(self.pair.clock(), number)))
        return made

    def any_run(self, data: st.DataObject) -> Run:
        # The latest are the ones that most likely live.
        return data.draw(st.sampled_from(self.runs[-12:]))

    def any_job(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.known[-20:]))

    def checked(self) -> None:
        self.steps += 1
        if self.steps % 9 == 0:
            self.pair.compare()

    # Commands

    @rule(data=st.data())
    def enqueue(self, data: st.DataObject) -> None:
        made = self.new_jobs(data, 4)
        if isinstance(self.pair.ask(lambda store: store.enqueue(made)), list):
            self.known += [job.id for job in made]
        self.checked()

    @rule(
        worker=st.sampled_from(WORKERS),
        lanes=st.sampled_from([(("x", 1),), (("y", 1),), (("x", 2), ("y", 1))]),
        order=st.sampled_from(["weighted", "strict"]),
        n=st.sampled_from([1, 2, 5, 30]),
        free=st.sampled_from([0, 1, 5, 30]),
        step=st.sampled_from([1, 1, 1, 1, 0, -1]),
        lease_ms=st.sampled_from([60, 400]),
        go_on=st.booleans(),
    )
    def claim(self, worker, lanes, order, n, free, step, lease_ms, go_on) -> None:  # noqa: PLR0913, PLR0917  (a claim has as many fields)
        number = max(1, self.requests[worker] + step)
        self.requests[worker] = max(number, self.requests[worker])
        request = ClaimRequest(
            worker=worker,
            request=number,
            lanes=lanes,
            order=order,
            n=n,
            free=free,
            lease_ms=lease_ms,
        )
        reply = self.pair.claim(request, go_on=go_on)
        if isinstance(reply, ClaimReply):
            self.runs += [(worker, job.id, job.run) for job in reply.jobs]
        self.checked()

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), stranger=st.integers(0, 15))
    def settle(self, data: st.DataObject, stranger: int) -> None:
        worker, _, _ = self.any_run(data)
        mine = [run for run in self.runs[-20:] if run[0] == worker]
        chosen = data.draw(st.lists(st.sampled_from(mine), min_size=1, max_size=4))
        outcomes = tuple(self.outcome(data, job, run) for _, job, run in chosen)
        request = SettleRequest(
            worker=worker if stranger else data.draw(st.sampled_from(WORKERS)), outcomes=outcomes
        )
        self.pair.ask(lambda store: store.settle(request))
        self.checked()

    def outcome(self, data: st.DataObject, job: str, run: int) -> Outcome:
        then: tuple[NewJob, ...] = ()
        close: tuple[Closing, ...] = ()
        if data.draw(st.integers(0, 7)) == 0:
            then = tuple(self.new_jobs(data, 2))
            self.known += [one.id for one in then]
        if data.draw(st.integers(0, 9)) == 0:
            close = (Closing(gate=data.draw(RESOLVED), for_ms=data.draw(DELAYS), reason="429"),)
        fence = (job, run, then, close)
        delay = data.draw(DELAYS)
        until = data.draw(st.sampled_from([None, self.pair.clock() + 33]))
        key = data.draw(st.sampled_from(["call-1", "call-2", "call-3", f"{job}:{run}"]))
        choices: list[Outcome] = [
            Succeeded(*fence),
            Succeeded(*fence, result=b'{"r":1}'),
            Failed(*fence, error="boom"),
            Failed(*fence, error="bang\nboom", after_ms=delay, until_at=until),
            Died(*fence, reason="bad", error="why"),
            Snoozed(*fence, after_ms=delay, until_at=until),
            NextStage(*fence, stage="two", gates=data.draw(uses())),
            Released(*fence),
            HandedOver(*fence, key=key, timeout_ms=data.draw(st.sampled_from([30, 300]))),
            HandedOver(*fence, key=key, timeout_ms=150),
            KnownAs(*fence, key=key),
            Returned(*fence, error=data.draw(st.sampled_from(["", "oops"]))),
            GaveBack(*fence, gate=data.draw(RESOLVED)),
            FoundUnfit(*fence, reason="off duty"),
        ]
        return data.draw(st.sampled_from(choices))

    @rule(data=st.data(), worker=st.sampled_from(WORKERS), leaving=st.integers(0, 9))
    def beat(self, data: st.DataObject, worker: str, leaving: int) -> None:
        mine = [(job, run) for name, job, run in self.runs[-20:] if name == worker]
        listed = [one for one in mine if data.draw(st.integers(0, 5))]
        told = [one for one in listed if data.draw(st.integers(0, 5)) == 0]
        request = BeatRequest(
            worker=worker,
            running=tuple(dict.fromkeys(listed)),
            request=data.draw(st.integers(0, self.requests[worker])),
            lease_ms=data.draw(st.sampled_from([60, 400])),
            lanes=data.draw(st.sampled_from([(), LANES])),
            name="host",
            progress=tuple((job, run, b'{"p":1}') for job, run in told),
            leaving=leaving == 0,
        )
        self.pair.ask(lambda store: store.beat(request))
        self.checked()

    @rule(data=st.data())
    def signal(self, data: st.DataObject) -> None:
        keys = ["call-1", "call-2", "call-3"]
        if self.runs:
            _, job, run = self.any_run(data)
            keys.append(f"{job}:{run}")
        signal = Signal(
            key=data.draw(st.sampled_from(keys)),
            event=data.draw(st.sampled_from(["e1", "e2", "e3", "e4", "e5"])),
            kind=data.draw(
                st.sampled_from([SignalKind.FINAL, SignalKind.FINAL, *list(SignalKind)])
            ),
            decided=data.draw(st.sampled_from(list(Decided))),
            body=data.draw(st.sampled_from([None, b'{"b":1}'])),
            label="RINGING",
            extend_ms=data.draw(st.sampled_from([None, 100])),
            after_ms=data.draw(st.sampled_from([None, 0, 20])),
            reason=data.draw(st.sampled_from(["", "said so"])),
            candidate=data.draw(st.sampled_from(["", "", "a", "b"])),
        )
        self.pair.ask(lambda store: store.signal(signal))
        self.checked()

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        flights = [
            InFlight(
                job=job,
                signal_key=data.draw(st.sampled_from(["call-1", "call-2"])),
                since_at=self.pair.clock() - 10,
                deadline_ms=data.draw(st.sampled_from([40, 300])),
                members={"pool": "m", "desk:1": "n", "desk:2": "n"},
            )
            for job in self.new_jobs(data, 2)
        ]
        if isinstance(self.pair.ask(lambda store: store.restore(flights)), list):
            self.known += [flight.job.id for flight in flights]
        self.checked()

    @precondition(lambda self: self.known)
    @rule(data=st.data(), verb=st.sampled_from(list(Verb)), again=st.integers(0, 9))
    def act(self, data: st.DataObject, verb: Verb, again: int) -> None:
        self.acts += again != 0
        now = self.pair.clock()
        edit = Edit(
            priority=data.draw(st.sampled_from([None, 0, 3])),
            due_at=data.draw(st.sampled_from([None, now - 1, now + 40])),
            args=data.draw(st.sampled_from([None, b'{"n":9}'])),
        )
        ids = tuple(dict.fromkeys(self.any_job(data) for _ in range(data.draw(st.integers(1, 3)))))
        request = ActRequest(
            request=f"act-{self.acts}",
            ids=ids,
            verb=verb,
            edit=edit if verb in {Verb.EDIT, Verb.RETRY} else Edit(),
            author="ann",
            reason="drill",
        )
        self.pair.ask(lambda store: store.act(request))
        self.checked()

    @rule(data=st.data(), author=st.sampled_from(["ann", "bob"]))
    def define(self, data: st.DataObject, author: str) -> None:
        changes = data.draw(st.lists(items(self.pair.clock()), min_size=1, max_size=3))
        request = DefineRequest(items=tuple(changes), author=author, reason="drill")
        self.pair.ask(lambda store: store.define(request))
        self.checked()

    @precondition(lambda self: self.known)
    @rule(data=st.data(), gate=NAMES)
    def release_permit(self, data: st.DataObject, gate: str) -> None:
        job = self.any_job(data)
        self.pair.ask(lambda store: store.release_permit(gate, job, "ann", "stuck"))
        self.checked()

    @rule(data=st.data(), ahead=st.sampled_from([0, 5_000]), stale=st.integers(0, 9))
    def fire(self, data: st.DataObject, ahead: int, stale: int) -> None:
        entries = self.pair.ask(lambda store: store.read(TimetableQuery()))
        assert isinstance(entries, tuple)
        if not entries:
            return
        entry: EntryView = data.draw(st.sampled_from(entries))
        start = self.pair.clock() // 1_000 * 1_000
        moments = tuple(
            start + 1_000 * step
            for step in sorted(data.draw(st.sets(st.integers(-2, 4), min_size=1, max_size=3)))
        )
        request = FireRequest(
            entry=entry.spec.name,
            revision=entry.revision - (stale == 0),
            moments=moments,
            ahead_until=max(moments[-1], self.pair.clock() + ahead),
        )
        self.pair.ask(lambda store: store.fire(request))
        self.checked()

    @rule(n=st.sampled_from([1, 3, 100]))
    def sweep(self, n: int) -> None:
        self.pair.ask(lambda store: store.sweep(n))
        self.checked()

    @rule(role=st.sampled_from(["alerts", "bridges"]), holder=st.sampled_from(WORKERS))
    def lead(self, role: str, holder: str) -> None:
        self.pair.ask(lambda store: store.lead(role, holder, 90))

    @rule(ms=st.sampled_from([1, 1, 5, 20, 50, 130, 1_000, 4_000, 70_000, -40, -500]))
    def time(self, ms: int) -> None:
        if ms < 0:
            # A time at which a store was only read may be forgotten.
            self.pair.ask(lambda store: store.lead("clock", "here", 1))
        self.pair.clock.advance(ms)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        job = self.any_job(data)
        self.pair.ask(lambda store: store.read(WhyQuery(id=job)))
        query = JobsQuery(
            lane=data.draw(st.sampled_from([None, "x"])),
            tenant=data.draw(st.sampled_from([None, "acme"])),
            kind=data.draw(st.sampled_from([None, "dial"])),
            states=data.draw(
                st.sampled_from([(), (State.WAITING,), (State.DEAD, State.CANCELLED)])
            ),
            runs=data.draw(st.booleans()),
            newest=data.draw(st.booleans()),
            limit=data.draw(st.sampled_from([1, 3, 100])),
        )
        self.pair.ask(lambda store: store.read(query))
        about = JobsQuery(subject="her", tenant=data.draw(st.sampled_from(["acme", "beta"])))
        self.pair.ask(lambda store: store.read(about))
        name = f"lock:{data.draw(st.sampled_from(KEYS))}"
        self.pair.ask(lambda store: store.read(GatesQuery(names=(name, "pool", "all"))))
        self.pair.ask(lambda store: store.read(StatsQuery()))


COMMON = settings(
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


class TestSqliteEqualsMemory(StoresMachine.TestCase):
    settings = settings(COMMON, max_examples=40, stateful_step_count=50)


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestSqliteEqualsMemoryInLongHistories(StoresMachine.TestCase):
    settings = settings(COMMON, max_examples=400, stateful_step_count=150)
