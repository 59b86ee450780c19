"""What the state machine draws: few names, so that commands interact."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headway.contract.definitions import (
    CloseGate,
    DeclareEntry,
    DeclareGate,
    DeclareLane,
    EnableEntry,
    EntrySpec,
    Item,
    LaneSpec,
    NoteUse,
    OpenGate,
    RemoveEntry,
    ResetGate,
    ResetLane,
    RevokeToken,
    Role,
    SetGate,
    SetLane,
    SetToken,
    TokenSecret,
    TokenSpec,
)
from headway.contract.operate import Edit
from headway.core.gates.hours import hours_spec
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateKind, GateSpec, GateUse
from headway.core.job import FollowUp, JobPolicy, NewJob
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.core.timetable.fires import MisfirePolicy
from headway.core.timetable.schedule import Every

LANES = ("x", "y")
TENANTS = ("acme", "beta")
KEYS = ("k", "l m")
TOKENS = ("1" * 16, "2" * 16)
WORKERS = ("worker-1", "worker-2", "worker-3")
DELAYS = (0, 1, 10, 45, 200)

HOURS = hours_spec("00:00-12:00", tz="UTC")
SPECS = [
    Slots("slots", 5),
    Rate("rate", 4, "40ms"),
    Pool("pool", {"m": 2, "n": 3}, strategy="round_robin"),
    GateSpec(name="hours", kind=GateKind.HOURS, shared=True, hours=HOURS),
    Slots("lock:{key}", 2),
    Rate("call:{key}", 2, "60ms"),
    Pool("desk:{key}", {"m": 1, "n": 2}),
    Slots("tech:{candidate}", 1),
]
SMALLER = [
    Slots("slots", 1),
    Slots("lock:{key}", 1),
    Pool("pool", {}, strategy="round_robin"),
    Pool("desk:{key}", {"n": 1, "o": 0}),
]

RETRY = RetryPolicy(attempts=3, base_ms=20, factor=2.0, cap_ms=100, jitter="equal")
ALERT = FollowUp(kind="alert", states=(State.DEAD, State.CANCELLED))
POLICIES = [
    JobPolicy(),
    JobPolicy(retry=RETRY, keep_ms=5_000, key_for_ms=300),
    JobPolicy(retry=RETRY, on_final=ALERT),
    JobPolicy(retry=RETRY, on_deadline="retry"),
    JobPolicy(retry=RETRY, reconcile="ask", reconcile_within_ms=50),
]
OFFERS = [
    JobPolicy(retry=RETRY, cascade=True, on_final=ALERT),
    JobPolicy(
        retry=RETRY,
        cascade=True,
        reconcile="ask",
        reconcile_within_ms=50,
        on_final=ALERT,
        on_accepted=FollowUp(kind="taken", lane="y", states=()),
    ),
]
NOWHERE = (GateUse(name="nowhere", template="nowhere"),)
TECH = GateUse(name="tech:{candidate}", template="tech:{candidate}")

RESOLVED = (
    "slots", "rate", "pool", "pool/m", "pool/n", "hours", "lock:1", "lock:2", "call:1", "desk:1",
    "desk:1/m", "desk:2/n", "tech:a",
)  # fmt: skip
IMPLICIT = ("all", "lane:x", "lane:y", "tenant:acme", "kind:dial")
NAMES = RESOLVED + IMPLICIT
TEMPLATES = ("slots", "lock:{key}", "tech:{candidate}")


def draw_uses(dice: Random) -> tuple[GateUse, ...]:
    # Jobs need the lock most often, because stores are most likely to differ where jobs park.
    specs = dict.fromkeys(dice.choices(range(7), weights=[2, 1, 2, 1, 9, 2, 2], k=3))
    found: list[GateUse] = []
    for spec in [SPECS[place] for place in specs][: dice.choice((0, 1, 1, 2, 3))]:
        is_hours = spec.kind is GateKind.HOURS
        found.append(
            GateUse(
                name=spec.name.replace("{key}", dice.choice(KEYS)),
                template=spec.name,
                amount=1 if is_hours else dice.choice((1, 1, 1, 1, 2, 3)),
                hold=dice.choice(("settled", "run")),
                shared=spec.shared,
                zone="UTC" if is_hours else None,
            )
        )
    return tuple(found)


def draw_stage(dice: Random) -> tuple[str, tuple[GateUse, ...]]:
    """Draw the stage of the next attempt: mostly the same one, now and then at an unknown gate."""
    if dice.random() < 0.6:
        return "", NOWHERE if dice.random() < 0.05 else ()
    return "three", NOWHERE if dice.random() < 0.1 else draw_uses(dice)


def draw_edit(dice: Random, now: int) -> Edit:
    uses = (NOWHERE, (), draw_uses(dice), draw_uses(dice), (*draw_uses(dice), TECH))
    return Edit(
        priority=dice.choice((None, 0, 3)),
        due_at=dice.choice((None, now - 1, now + 40)),
        args=dice.choice((None, b'{"n":9}')),
        stage=dice.choice((None, None, "", "four")),
        gates=dice.choice((None, None, None, *uses)),
        candidates=dice.choice((None, None, None, (), ("c", "a"), ("d", "b"), ("a", "a"))),
    )


def draw_job(dice: Random, now: int, number: int) -> NewJob:
    gates, policy = draw_uses(dice), dice.choice(POLICIES)
    candidates: tuple[str, ...] = ()
    if dice.random() < 0.25:
        gates, policy = (*gates, TECH), dice.choice(OFFERS)
        candidates = tuple(dice.sample("abcd", dice.choice((0, 1, 2, 3, 3))))
    return NewJob(
        id=f"00000000-0000-4000-8000-{number:012}",
        kind=dice.choice(("dial", "dial", "text")),
        lane=dice.choice(LANES),
        tenant=dice.choice(TENANTS),
        subject=dice.choice((None, "her", "him")),
        args=b'{"n":2}' if dice.random() < 0.05 else b'{"n":1}',
        priority=dice.choice((1, 2, 2)),
        due_at=dice.choice((None, now - 5, now - 1, now, now + 30)),
        expires_at=now + 80 if dice.random() < 0.1 else None,
        key=dice.choice(("k1", "k2", "k3")) if dice.random() < 0.15 else None,
        gates=gates,
        policy=policy,
        candidates=candidates,
    )


def draw_lane(dice: Random) -> LaneSpec:
    return LaneSpec(
        name=dice.choice(LANES),
        concurrency=dice.choice((None, None, 3, 8)),
        fair=dice.choice((None, "tenant")),
        weights=dice.choice(((), (("acme", 3),))),
        max_backlog=dice.choice((None, None, None, 40)),
    )


def draw_entry(dice: Random) -> EntrySpec:
    return EntrySpec(
        name=dice.choice(("nightly", "hourly")),
        schedule=Every(dice.choice((1_000, 2_000))),
        job=NewJob(id="", kind="tidy", lane=dice.choice(LANES), gates=draw_uses(dice)),
        misfire=dice.choice(list(MisfirePolicy)),
        misfire_cap=dice.choice((1, 100)),
        overlap=dice.choice(("skip", "one", "all")),
    )


def draw_token(dice: Random) -> TokenSpec:
    return TokenSpec(
        id=dice.choice(TOKENS),
        name=dice.choice(("orders", "sender")),
        roles=tuple(dice.sample(list(Role), dice.choice((0, 1, 2)))),
        secrets=(TokenSecret(digest=dice.choice("ab") * 64, until_at=dice.choice((None, 5))),),
        tenants=dice.choice((None, None, TENANTS)),
        lanes=dice.choice((None, ("send_*",))),
        expires_at=dice.choice((None, 9)),
    )


def draw_item(dice: Random, now: int) -> Item:
    name = dice.choice(NAMES)
    amount = dice.choice((0, 1, 2, 3, 4, 6))
    template = dice.choice((*NAMES, *TEMPLATES))
    members = dice.choice(((("m", 1),), (("n", 3), ("o", 1))))
    draws: list[tuple[int, Callable[[], Item]]] = [
        (2, lambda: CloseGate(name=name, until_at=dice.choice((now + 3, now + 25, None)))),
        (4, lambda: OpenGate(name=name)),
        (4, lambda: SetGate(name=template, capacity=amount)),
        (1, lambda: SetGate(name="rate", limit=amount, per_ms=dice.choice((None, 70)))),
        (1, lambda: SetGate(name=dice.choice(("call:{key}", "call:1")), limit=amount)),
        (1, lambda: SetGate(name=dice.choice(("pool", "desk:{key}")), members=members)),
        (4, lambda: ResetGate(name=template)),
        (1, lambda: DeclareGate(spec=dice.choice([*SPECS, *SMALLER]))),
        (1, lambda: DeclareLane(spec=draw_lane(dice))),
        (1, lambda: SetLane(spec=draw_lane(dice))),
        (1, lambda: ResetLane(name=dice.choice(LANES))),
        (2, lambda: DeclareEntry(spec=draw_entry(dice))),
        (1, lambda: EnableEntry(name="nightly", enabled=dice.random() < 0.5)),
        (1, lambda: RemoveEntry(name="hourly")),
        (1, lambda: SetToken(spec=draw_token(dice))),
        (1, lambda: RevokeToken(id=dice.choice(TOKENS))),
        (1, lambda: NoteUse(used=((dice.choice(TOKENS), now - dice.choice((0, 9))),))),
    ]
    (draw,) = dice.choices([one for _, one in draws], [weight for weight, _ in draws])
    return draw()
