"""Random commands on a store and on memory: equal replies, equal dumps, clean audits."""

from __future__ import annotations

from abc import abstractmethod
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headway.contract.claims import BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.definitions import DeclareGate, DefineRequest, FireRequest
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
from headway.contract.store import Clock, InFlight, Store
from headway.contract.views import (
    EntryView,
    FlowsQuery,
    GatesQuery,
    JobQuery,
    JobsQuery,
    Page,
    StatsQuery,
    TimetableQuery,
    WaitingFlow,
    WhyQuery,
)
from headway.core.job import NewJob, derived_id, ids_after
from headway.core.state import State
from tests.depth import DEPTH
from tests.machine.drawing import (
    DELAYS,
    KEYS,
    LANES,
    NAMES,
    RESOLVED,
    SPECS,
    WORKERS,
    draw_edit,
    draw_item,
    draw_job,
    draw_stage,
    draw_uses,
)
from tests.machine.pair import Pair

DICE = st.randoms(use_true_random=True)
"""Seeds for the details of a command, so that a long history stays varied however it is shrunk."""

Run = tuple[str, str, int]


class StoresMachine(RuleBasedStateMachine):
    """Runs each command on both stores and compares the replies; a subclass opens a store."""

    store_name: str

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.store_name, self.open)
        self.known: list[str] = []
        self.runs: list[Run] = []
        self.handed: list[str] = ["call-1"]
        self.next_at: int | None = None
        self.requests: dict[str, int] = dict.fromkeys(WORKERS, 0)
        self.made = 0
        self.acts = 0
        self.made_up = 0
        self.steps = 0

    @abstractmethod
    def open(self, clock: Clock) -> Store:
        """Return a new, empty store."""

    def forget(self) -> None:
        """Remove what the store left behind; it is already closed."""

    @initialize(dice=DICE)
    def declare_and_fill(self, dice: Random) -> None:
        items = tuple(DeclareGate(spec=spec) for spec in SPECS)
        self.pair.ask(lambda store: store.define(DefineRequest(items=items, author="code")))
        for _ in range(4):
            self.enqueue(dice)

    def teardown(self) -> None:
        try:
            self.pair.compare()
        finally:
            self.pair.close()
            self.forget()

    # Drawing

    def new_jobs(self, dice: Random, most: int) -> list[NewJob]:
        made: list[NewJob] = []
        for _ in range(dice.randint(1, most)):
            again = bool(self.known) and dice.randint(0, 9) == 0
            if not again:
                self.made += 1
            number = dice.randint(1, self.made) if again else self.made
            job = draw_job(dice, self.pair.clock(), number)
            if self.known and dice.randint(0, 11) == 0:
                job = job.changed(id=self.id_of_a_follower(dice))
            made.append(job)
        return made

    def id_of_a_follower(self, dice: Random) -> str:
        """Return the id that a follow-up job of one of these gets, unless another job has it."""
        cause = self.any_job(dice)
        parts = dice.choice(
            [("on_final", cause, 1), ("reconcile", cause, 1, 1), ("on_accepted", cause, 1)]
        )
        first = derived_id(*parts)
        return dice.choice([first, first, *ids_after(first, 2)])

    def any_run(self, dice: Random) -> Run:
        # The most recent runs are the most likely to be live.
        return dice.choice(self.runs[-12:])

    def any_job(self, dice: Random) -> str:
        return dice.choice(self.known[-20:])

    def checked(self) -> None:
        self.steps += 1
        if self.steps % 9 == 0:
            self.pair.compare()

    # Commands

    @rule(dice=DICE)
    def enqueue(self, dice: Random) -> None:
        made = self.new_jobs(dice, 6)
        if isinstance(self.pair.ask(lambda store: store.enqueue(made)), list):
            self.known += [job.id for job in made]
        self.checked()

    @rule(dice=DICE, worker=st.sampled_from(WORKERS))
    def claim(self, dice: Random, worker: str) -> None:
        step = dice.choice([1, 1, 1, 1, 1, 0, -1])
        number = max(1, self.requests[worker] + step)
        self.requests[worker] = max(number, self.requests[worker])
        n = dice.choice([1, 2, 9, 30])
        request = ClaimRequest(
            worker=worker,
            request=number,
            lanes=dice.choice([(("x", 1),), (("y", 1),), (("x", 2), ("y", 1))]),
            order=dice.choice(["weighted", "strict"]),
            n=n,
            free=dice.choice([n, n, n, 1, 0]),
            lease_ms=dice.choice([30_000, 30_000, 90]),
        )
        reply = self.pair.claim(request, go_on=dice.random() < 0.5)
        if isinstance(reply, ClaimReply):
            self.next_at = reply.next_at
            held = set(self.runs)
            mine = [(worker, job.id, job.run) for job in reply.jobs]
            self.runs += [run for run in mine if run not in held]
        self.checked()

    @rule(dice=DICE, worker=st.sampled_from(WORKERS))
    def claim_again(self, dice: Random, worker: str) -> None:
        self.claim(dice, worker)

    @precondition(lambda self: self.runs)
    @rule(dice=DICE, stranger=st.integers(0, 15))
    def settle(self, dice: Random, stranger: int) -> None:
        worker, _, _ = self.any_run(dice)
        mine = [run for run in self.runs[-20:] if run[0] == worker]
        chosen = dice.choices(mine, k=dice.randint(1, 4))
        for run in chosen:
            # Most runs are settled once; some are kept, to be settled again.
            if run in self.runs and dice.randint(0, 4):
                self.runs.remove(run)
        outcomes = tuple(self.outcome(dice, job, run) for _, job, run in chosen)
        request = SettleRequest(
            worker=worker if stranger else dice.choice(WORKERS), outcomes=outcomes
        )
        self.pair.ask(lambda store: store.settle(request))
        self.handed += [one.key for one in outcomes if isinstance(one, HandedOver | KnownAs)]
        self.checked()

    @precondition(lambda self: self.runs)
    @rule(dice=DICE, stranger=st.integers(1, 15))
    def settle_more(self, dice: Random, stranger: int) -> None:
        self.settle(dice, stranger)

    def outcome(self, dice: Random, job: str, run: int) -> Outcome:
        then: tuple[NewJob, ...] = ()
        close: tuple[Closing, ...] = ()
        if dice.randint(0, 7) == 0:
            then = tuple(self.new_jobs(dice, 2))
            self.known += [one.id for one in then]
        if dice.randint(0, 9) == 0:
            close = (Closing(gate=dice.choice(RESOLVED), for_ms=dice.choice(DELAYS), reason="429"),)
        fence = (job, run, then, close)
        delay = dice.choice(DELAYS)
        until = dice.choice([None, self.pair.clock() + 33])
        key = dice.choice(["call-1", "call-2", "call-3", f"{job}:{run}"])
        stage, gates = draw_stage(dice)
        choices: list[Outcome] = [
            Succeeded(*fence),
            Succeeded(*fence, result=b'{"r":1}'),
            Failed(*fence, error="boom"),
            Failed(*fence, error="bang\nboom", after_ms=delay, until_at=until),
            Failed(*fence, error="on", after_ms=delay, stage=stage, gates=gates),
            Died(*fence, reason="bad", error="why"),
            Snoozed(*fence, after_ms=delay, until_at=until),
            NextStage(*fence, stage="two", gates=draw_uses(dice)),
            Released(*fence),
            HandedOver(*fence, key=key, timeout_ms=dice.choice([30, 300])),
            HandedOver(*fence, key=f"{job}:{run}", timeout_ms=40_000),
            HandedOver(*fence, key=f"{job}:{run}", timeout_ms=40_000),
            KnownAs(*fence, key=key),
            Returned(*fence, error=dice.choice(["", "oops"])),
            GaveBack(*fence, gate=dice.choice(RESOLVED)),
            FoundUnfit(*fence, reason="off duty"),
        ]
        return dice.choice(choices)

    @rule(dice=DICE, worker=st.sampled_from(WORKERS), leaving=st.integers(0, 19))
    def beat(self, dice: Random, worker: str, leaving: int) -> None:
        mine = [(job, run) for name, job, run in self.runs[-20:] if name == worker]
        listed = [one for one in mine if dice.randint(0, 9)]
        told = [one for one in listed if dice.randint(0, 5) == 0]
        request = BeatRequest(
            worker=worker,
            running=tuple(dict.fromkeys(listed)),
            request=dice.choice([0, 0, max(0, self.requests[worker] - 1)]),
            lease_ms=dice.choice([30_000, 30_000, 90]),
            lanes=dice.choice([(), LANES]),
            name="host",
            progress=tuple((job, run, b'{"p":1}') for job, run in told),
            leaving=leaving == 0,
        )
        self.pair.ask(lambda store: store.beat(request))
        self.checked()

    @precondition(lambda self: self.runs)
    @rule(dice=DICE)
    def offer(self, dice: Random) -> None:
        """Hand over a run, accept the offer, and send further signals about it."""
        worker, job, run = self.any_run(dice)
        key = f"{job}:{run}"
        handed = HandedOver(job, run, key=key, timeout_ms=400)
        request = SettleRequest(worker=worker, outcomes=(handed,))
        self.pair.ask(lambda store: store.settle(request))
        self.made_up += 1
        told = [
            Decided.ACCEPTED,
            *dice.sample([*Decided, Decided.RETRY], dice.choice([0, 0, 1, 2])),
        ]
        for place, decided in enumerate(told):
            stage, gates = draw_stage(dice) if decided is Decided.RETRY else ("", ())
            word = Signal(
                key=key,
                event=f"offer-{self.made_up}-{place}",
                decided=decided,
                after_ms=dice.choice([None, 0, 20]),
                reason=dice.choice(["", "said so"]),
                body=dice.choice([None, b'{"b":2}']),
                stage=stage,
                gates=gates,
                offer=place > 0 and dice.randint(0, 3) == 0,
            )
            self.pair.ask(lambda store, word=word: store.signal(word))
        self.checked()

    @rule(dice=DICE)
    def signal(self, dice: Random) -> None:
        keys = self.handed[-6:]
        if self.runs:
            _, job, run = self.any_run(dice)
            keys.append(f"{job}:{run}")
        kind = dice.choice([SignalKind.FINAL, SignalKind.FINAL, *list(SignalKind)])
        decided = dice.choice([*list(Decided), Decided.ACCEPTED])
        again = kind is SignalKind.FINAL and decided is Decided.RETRY
        stage, gates = draw_stage(dice) if again else ("", ())
        signal = Signal(
            key=dice.choice(keys),
            event=dice.choice([f"e{n}" for n in range(12)]),
            kind=kind,
            decided=decided,
            body=dice.choice([None, b'{"b":1}']),
            label="RINGING",
            extend_ms=dice.choice([None, 100]),
            after_ms=dice.choice([None, 0, 20]),
            reason=dice.choice(["", "said so"]),
            candidate=dice.choice(["", "", "a", "b"]),
            stage=stage,
            gates=gates,
            offer=dice.randint(0, 3) == 0,
        )
        self.pair.ask(lambda store: store.signal(signal))
        self.checked()

    def restore(self, dice: Random) -> None:
        flights = [
            InFlight(
                job=job,
                signal_key=dice.choice(["call-1", "call-2"]),
                since_at=self.pair.clock() - 10,
                deadline_ms=dice.choice([40, 300]),
                members={"pool": "m", "desk:1": "n", "desk:2": "n"},
            )
            for job in self.new_jobs(dice, 2)
        ]
        if isinstance(self.pair.ask(lambda store: store.restore(flights)), list):
            self.known += [flight.job.id for flight in flights]
        self.checked()

    def act(self, dice: Random) -> None:
        verb = dice.choice([*Verb, Verb.EDIT, Verb.EDIT, Verb.RETRY])
        self.acts += dice.randint(0, 9) != 0
        now = self.pair.clock()
        edit = draw_edit(dice, now)
        ids = tuple(dict.fromkeys(self.any_job(dice) for _ in range(dice.randint(1, 3))))
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

    def define(self, dice: Random) -> None:
        author = dice.choice(["ann", "bob"])
        now = self.pair.clock()
        changes = [draw_item(dice, now) for _ in range(dice.choice((1, 1, 1, 2)))]
        request = DefineRequest(items=tuple(changes), author=author, reason="drill")
        self.pair.ask(lambda store: store.define(request))
        self.checked()

    def release_permit(self, dice: Random) -> None:
        job, gate = self.any_job(dice), dice.choice(NAMES)
        self.pair.ask(lambda store: store.release_permit(gate, job, "ann", "stuck"))
        self.checked()

    def fire(self, dice: Random) -> None:
        entries = self.pair.ask(lambda store: store.read(TimetableQuery()))
        assert isinstance(entries, tuple)
        if not entries:
            return
        entry: EntryView = dice.choice(entries)
        ahead = dice.choice([0, 5_000])
        stale = dice.randint(0, 9) == 0
        start = self.pair.clock() // 1_000 * 1_000
        moments = tuple(
            start + 1_000 * step for step in sorted(dice.sample(range(-2, 5), dice.randint(1, 3)))
        )
        request = FireRequest(
            entry=entry.spec.name,
            revision=entry.revision - stale,
            moments=moments,
            ahead_until=max(moments[-1], self.pair.clock() + ahead),
        )
        self.pair.ask(lambda store: store.fire(request))
        self.checked()

    @precondition(lambda self: self.known)
    @rule(dice=DICE, what=st.sampled_from(["act", "act", "define", "define", "fire", "other"]))
    def operate(self, dice: Random, what: str) -> None:
        rare = [self.restore, self.release_permit, self.lead]
        moves = {"act": self.act, "define": self.define, "fire": self.fire}
        moves.get(what, dice.choice(rare))(dice)

    @rule(n=st.sampled_from([1, 3, 100]))
    def sweep(self, n: int) -> None:
        reply = self.pair.ask(lambda store: store.sweep(n))
        if isinstance(reply, SweepReply):
            self.next_at = reply.next_at
        self.checked()

    def lead(self, dice: Random) -> None:
        role = dice.choice(["alerts", "bridges"])
        holder = dice.choice(WORKERS)
        self.pair.ask(lambda store: store.lead(role, holder, 90))

    @rule(ms=st.sampled_from([1, 1, 1, 5, 5, 20, 20, 50, 50, 130, 1_000, 4_000, 70_000, -40]))
    def time(self, ms: int) -> None:
        if ms < 0:
            # A store may forget a time at which it only read, but never one at which it wrote.
            self.pair.ask(lambda store: store.lead("clock", "here", 1))
        self.pair.clock.advance(ms)

    @precondition(lambda self: self.next_at is not None)
    @rule(early=st.sampled_from([0, 0, 1]))
    def to_the_next_moment(self, early: int) -> None:
        """Advance to the next time when something opens, falls due or expires, or just before."""
        assert self.next_at is not None
        ahead = self.next_at - early - self.pair.clock()
        if 0 < ahead < 100_000:
            self.pair.clock.advance(ahead)

    @precondition(lambda self: self.known)
    @rule(dice=DICE)
    def look(self, dice: Random) -> None:
        job = self.any_job(dice)
        self.pair.ask(lambda store: store.read(WhyQuery(id=job)))
        self.pair.ask(lambda store: store.read(JobQuery(id=job)))
        query = JobsQuery(
            lane=dice.choice([None, "x"]),
            tenant=dice.choice([None, "acme"]),
            kind=dice.choice([None, "dial"]),
            states=dice.choice([(), (State.WAITING,), (State.DEAD, State.CANCELLED)]),
            runs=dice.random() < 0.5,
            newest=dice.random() < 0.5,
            limit=dice.choice([1, 3, 100]),
        )
        self.pair.ask(lambda store: store.read(query))
        about = JobsQuery(subject="her", tenant=dice.choice(["acme", "beta"]))
        self.pair.ask(lambda store: store.read(about))
        name = f"lock:{dice.choice(KEYS)}"
        self.pair.ask(lambda store: store.read(GatesQuery(names=(name, "pool", "all"))))
        queries = [FlowsQuery(lane=lane, first=3) for lane in LANES]
        gates = self.pair.ask(lambda store: store.read(GatesQuery(parked=True)))
        if isinstance(gates, Page):
            queries += [FlowsQuery(gate=gate.name, first=3) for gate in gates.rows]
        for flows in queries:
            self.pair.ask(lambda store, flows=flows: flows_of(store, flows))
        held = JobsQuery(worker=dice.choice(WORKERS), runs=True)
        self.pair.ask(lambda store: store.read(held))
        self.pair.ask(lambda store: store.read(StatsQuery()))


async def flows_of(store: Store, query: FlowsQuery) -> list[WaitingFlow]:
    """Return flows in an order independent of their numbers, which differ between stores."""
    return sorted((await store.read(query)).rows, key=repr)


_COMMON = settings(
    deadline=None,
    # The same for each change, so that no change fails because of another; random when deeper.
    derandomize=DEPTH == 1,
    print_blob=True,
    suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
)
SHORT = settings(_COMMON, max_examples=10, stateful_step_count=100)
LONG = settings(_COMMON, max_examples=25 * DEPTH, stateful_step_count=250)
