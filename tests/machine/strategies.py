"""What the state machine draws: few names, so that things meet."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from headway.contract.definitions import (
    CloseGate,
    DeclareEntry,
    DeclareGate,
    DeclareLane,
    EnableEntry,
    EntrySpec,
    LaneSpec,
    OpenGate,
    RemoveEntry,
    ResetGate,
    ResetLane,
    SetGate,
    SetLane,
)
from headway.core.gates.hours import hours_spec
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateKind, GateSpec, GateUse
from headway.core.job import FollowUp, JobPolicy, NewJob
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.core.timetable.misfire import MisfirePolicy
from headway.core.timetable.schedule import Every

LANES = ("x", "y")
TENANTS = ("acme", "beta")
KEYS = ("1", "2")
WORKERS = ("worker-1", "worker-2", "worker-3")

SPECS = [
    Slots("slots", 3),
    Rate("rate", 3, "40ms"),
    Pool("pool", {"m": 2, "n": 1}, strategy="round_robin"),
    GateSpec(
        name="hours", kind=GateKind.HOURS, shared=True, hours=hours_spec("00:00-12:00", tz="UTC")
    ),
    Slots("lock:{key}", 2),
    Rate("call:{key}", 2, "60ms"),
    Pool("desk:{key}", {"m": 1, "n": 2}),
    Slots("tech:{candidate}", 1),
]
ORDINARY = SPECS[:-1]

RETRY = RetryPolicy(attempts=2, base_ms=20, factor=2.0, cap_ms=100, jitter="equal")
ALERT = FollowUp(kind="alert", states=(State.DEAD, State.CANCELLED))
POLICIES = [
    JobPolicy(),
    JobPolicy(retry=RETRY, keep_ms=500, key_for_ms=300),
    JobPolicy(retry=RETRY, on_final=ALERT),
    JobPolicy(retry=RETRY, on_deadline="retry"),
    JobPolicy(retry=RETRY, reconcile="ask", reconcile_within_ms=50),
]
OFFER = JobPolicy(retry=RETRY, cascade=True, on_final=ALERT)

DELAYS = st.sampled_from([0, 1, 10, 45, 200])


@st.composite
def uses(draw: st.DrawFn) -> tuple[GateUse, ...]:
    found: list[GateUse] = []
    for spec in draw(st.lists(st.sampled_from(ORDINARY), max_size=3, unique_by=lambda s: s.name)):
        amount = draw(st.sampled_from([1, 1, 1, 2, 3]))
        found.append(
            GateUse(
                name=spec.name.replace("{key}", draw(st.sampled_from(KEYS))),
                template=spec.name,
                amount=1 if spec.kind is GateKind.HOURS else amount,
                hold=draw(st.sampled_from(["settled", "run"])),
                shared=spec.shared,
                zone="UTC" if spec.kind is GateKind.HOURS else None,
            )
        )
    return tuple(found)


@st.composite
def jobs(draw: st.DrawFn, now: int, number: int) -> NewJob:
    job = NewJob(
        id=f"00000000-0000-4000-8000-{number:012}",
        kind=draw(st.sampled_from(["dial", "text"])),
        lane=draw(st.sampled_from(LANES)),
        tenant=draw(st.sampled_from(TENANTS)),
        subject=draw(st.sampled_from([None, "her", "him"])),
        args=b'{"n":%d}' % draw(st.sampled_from([1, 1, 1, 2])),
        priority=draw(st.sampled_from([1, 2, 2])),
        due_at=draw(st.sampled_from([None, now - 5, now, now + 30, now + 200])),
        expires_at=draw(st.sampled_from([None, None, now + 80])),
        key=draw(st.sampled_from([None, None, "k1", "k2", "k3"])),
        gates=draw(uses()),
        policy=draw(st.sampled_from(POLICIES)),
    )
    if draw(st.integers(0, 7)):
        return job
    tech = GateUse(name="tech:{candidate}", template="tech:{candidate}")
    names = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3))
    return replace(job, policy=OFFER, candidates=tuple(names), gates=(*job.gates, tech))


RESOLVED = st.sampled_from(
    ["slots", "rate", "pool", "pool/m", "pool/n", "hours", "lock:1", "lock:2", "call:1", "desk:1",
     "desk:1/m", "desk:2/n", "tech:a"]
)  # fmt: skip
IMPLICIT = st.sampled_from(["all", "lane:x", "lane:y", "tenant:acme", "kind:dial"])
NAMES = st.one_of(RESOLVED, IMPLICIT)
TEMPLATES = st.sampled_from(["slots", "lock:{key}", "tech:{candidate}"])

LANE_SPECS = st.builds(
    LaneSpec,
    name=st.sampled_from(LANES),
    concurrency=st.sampled_from([None, None, 1, 3]),
    fair=st.sampled_from([None, "tenant"]),
    weights=st.sampled_from([(), (("acme", 3),)]),
    max_backlog=st.sampled_from([None, None, None, 12]),
)


@st.composite
def entry_specs(draw: st.DrawFn) -> EntrySpec:
    return EntrySpec(
        name=draw(st.sampled_from(["nightly", "hourly"])),
        schedule=Every(draw(st.sampled_from([1_000, 2_000]))),
        job=NewJob(
            id="",
            kind="tidy",
            lane=draw(st.sampled_from(LANES)),
            gates=draw(uses()),
        ),
        misfire=draw(st.sampled_from(list(MisfirePolicy))),
        misfire_cap=draw(st.sampled_from([1, 100])),
        overlap=draw(st.sampled_from(["skip", "one", "all"])),
    )


def items(now: int) -> st.SearchStrategy[object]:
    amounts = st.integers(0, 4)
    return st.one_of(
        st.builds(CloseGate, name=NAMES, until_at=st.sampled_from([None, now + 25, now + 90])),
        st.builds(OpenGate, name=NAMES),
        st.builds(OpenGate, name=NAMES),
        st.builds(SetGate, name=st.one_of(NAMES, TEMPLATES), capacity=amounts),
        st.builds(SetGate, name=st.just("rate"), limit=amounts, per_ms=st.sampled_from([None, 70])),
        st.builds(SetGate, name=st.sampled_from(["call:{key}", "call:1"]), limit=amounts),
        st.builds(
            SetGate,
            name=st.sampled_from(["pool", "desk:{key}"]),
            members=st.sampled_from([(("m", 1),), (("n", 3), ("o", 1))]),
        ),
        st.builds(ResetGate, name=st.one_of(NAMES, TEMPLATES)),
        st.builds(
            DeclareGate, spec=st.sampled_from([*SPECS, Slots("slots", 1), Slots("lock:{key}", 1)])
        ),
        st.builds(DeclareLane, spec=LANE_SPECS),
        st.builds(SetLane, spec=LANE_SPECS),
        st.builds(ResetLane, name=st.sampled_from(LANES)),
        st.builds(DeclareEntry, spec=entry_specs()),
        st.builds(EnableEntry, name=st.just("nightly"), enabled=st.booleans()),
        st.builds(RemoveEntry, name=st.just("hourly")),
    )
