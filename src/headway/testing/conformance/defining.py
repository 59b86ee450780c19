"""Definitions: declarations, operators' values until reset, all or none, on the trail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DeclareLane,
    DefineRequest,
    LaneSpec,
    OpenGate,
    ResetGate,
    ResetLane,
    SetGate,
    SetLane,
)
from headway.contract.outcomes import HandedOver
from headway.contract.views import GatesQuery, SpecsQuery, StatsQuery
from headway.core.errors import CallerError, InvalidValue, RevisionConflict, UnknownGate
from headway.core.gates.opening import Hours
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.state import State
from headway.testing.conformance.rig import (
    AUTHOR,
    REASON,
    ConformanceGroup,
    Rig,
    each_bad_note,
)
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import keyed, use_of

LINE = Slots("line", 2)
PHONE = Slots("phone:{phone}", 1)
TWILIO = Rate("rate:twilio", 3, "10s")
NUMBERS = Pool("numbers", {"a": 1, "b": 2})
OTHER: Any = "other"
CLOSED = {"2026-12-25": None}


class DefineGroup(ConformanceGroup):
    """Gates and lanes, by code or by an operator."""

    async def test_declared_gates_are_listed_as_declared(self, rig: Rig) -> None:
        await rig.declare(TWILIO, LINE, NUMBERS, PHONE)
        specs = await rig.store.read(SpecsQuery())
        assert {spec.name: spec for spec in specs} == {
            spec.name: spec for spec in (LINE, PHONE, TWILIO, NUMBERS)
        }
        line = await rig.gate("line")
        assert (line.kind, line.shared, line.capacity) == ("slots", True, 2)
        assert (line.used, line.free, line.open, line.overridden) == (0, 2, True, False)
        rate = await rig.gate("rate:twilio")
        assert (rate.kind, rate.capacity, rate.per_ms) == ("rate", 3, 10_000)
        pool = await rig.gate("numbers")
        assert [(one.name, one.capacity) for one in pool.members] == [
            ("numbers/a", 1), ("numbers/b", 2),
        ]  # fmt: skip

    async def test_revision_increases_with_each_change(self, rig: Rig) -> None:
        first = await rig.define(DeclareGate(spec=LINE))
        second = await rig.define(SetGate(name="line", capacity=1))
        assert second > first
        assert (await rig.store.read(StatsQuery())).revision == second

    async def test_change_under_an_old_revision_is_refused_and_writes_nothing(
        self, rig: Rig
    ) -> None:
        old = await rig.define(DeclareGate(spec=LINE))
        await rig.define(SetGate(name="line", capacity=1))
        async with rig.refuses(RevisionConflict):
            await rig.define(SetGate(name="line", capacity=9), revision=old)

    async def test_change_under_the_current_revision_is_applied(self, rig: Rig) -> None:
        now = await rig.define(DeclareGate(spec=LINE))
        await rig.define(SetGate(name="line", capacity=9), revision=now)
        assert (await rig.gate("line")).capacity == 9

    async def test_operator_value_overrides_a_repeated_declaration(self, rig: Rig) -> None:
        await rig.declare(LINE, TWILIO, NUMBERS)
        await rig.cap("line", 7)
        await rig.define(
            SetGate(name="rate:twilio", limit=9, per_ms=500),
            SetGate(name="numbers", members=(("c", 5),)),
        )
        await rig.declare(Slots("line", 3), Rate("rate:twilio", 4, "20s"), NUMBERS)
        line, rate = await rig.gate("line"), await rig.gate("rate:twilio")
        assert (line.capacity, line.overridden) == (7, True)
        assert (rate.capacity, rate.per_ms, rate.overridden) == (9, 500, True)
        assert [one.name for one in (await rig.gate("numbers")).members] == ["numbers/c"]

    async def test_reset_restores_the_last_declared_value(self, rig: Rig) -> None:
        await rig.declare(LINE)
        await rig.cap("line", 7)
        await rig.declare(Slots("line", 3))
        await rig.reset("line")
        line = await rig.gate("line")
        assert (line.capacity, line.overridden) == (3, False)

    async def test_declaring_a_gate_as_another_kind_is_refused_and_writes_nothing(
        self, rig: Rig
    ) -> None:
        await rig.declare(LINE)
        async with rig.refuses(InvalidValue):
            await rig.declare(PHONE, Rate("line", 2, "1s"))

    @pytest.mark.parametrize(
        ("item", "match"),
        [
            (DeclareGate(spec=replace(NUMBERS, strategy=OTHER)), "the strategy is 'other'"),
            (DeclareLane(spec=LaneSpec(name="calls", fair=OTHER)), "fair is 'other'"),
            (SetLane(spec=LaneSpec(name="calls", fair=OTHER)), "fair is 'other'"),
        ],
        ids=["strategy", "fair", "fair of an operator"],
    )
    async def test_choice_that_does_not_exist_is_refused_in_a_definition(
        self, rig: Rig, item: DeclareGate | DeclareLane | SetLane, match: str
    ) -> None:
        async with rig.refuses(InvalidValue, match=match):
            await rig.define(DeclareGate(spec=LINE), item)

    @pytest.mark.parametrize(
        "item",
        [
            SetGate(name="x", capacity=1),
            ResetGate(name="x"),
            CloseGate(name="x"),
            OpenGate(name="x"),
        ],
        ids=lambda item: type(item).__name__,
    )
    async def test_change_of_an_unknown_gate_is_refused_and_writes_nothing(
        self, rig: Rig, item: SetGate | ResetGate | CloseGate | OpenGate
    ) -> None:
        await rig.declare(LINE)
        async with rig.refuses(UnknownGate):
            await rig.define(SetGate(name="line", capacity=9), item)

    @pytest.mark.parametrize(
        ("declared", "refused"),
        [
            (NUMBERS, Slots("numbers/a", 1)),
            (Rate("numbers/b", 3, "10s"), NUMBERS),
            (Pool("numbers-{tenant}", ["a"]), Slots("numbers-acme/a", 1)),
            (NUMBERS, Pool("numbers/a", ["c"])),
        ],
    )
    async def test_gate_and_pool_member_never_share_a_name(
        self, rig: Rig, declared: GateSpec, refused: GateSpec
    ) -> None:
        await rig.declare(declared)
        async with rig.refuses(InvalidValue):
            await rig.define(DeclareGate(spec=refused))

    async def test_templated_gate_cannot_be_requested_by_a_pool_members_name(
        self, rig: Rig
    ) -> None:
        lock, area = Slots("numbers/{name}", 5), Pool("area:{name}", ["a"])
        await rig.declare(lock, Pool("numbers", {"a": 1}), area, Slots("{name}", 5))
        for use in (
            use_of(lock, name="a"),
            use_of(Slots("{name}", 5), name="area:7/a"),
        ):
            async with rig.refuses(InvalidValue, match="has the same name as a member"):
                await rig.add(gates=(use,))
        free = await rig.add(gates=(use_of(lock, name="b"), use_of(Slots("{name}", 5), name="7/a")))
        assert await rig.worker.take_ids(2) == [free.id]
        pooled = await rig.add(gates=(use_of(Pool("numbers", {"a": 1})),))
        assert await rig.worker.take_ids(2) == [pooled.id]

    @pytest.mark.parametrize(
        ("own", "other", "match"),
        [
            (PHONE, Rate("phone:{phone}:{day}", 1, "10s"), "the rate 'phone:{phone}:{day}'"),
            (PHONE, Slots("phone:7:1", 1), "the slots 'phone:7:1'"),
            (Rate("phone:{a}", 1, "10s"), Rate("phone:{a}:{b}", 1, "1h"), "the rate"),
            (Slots("{phone}", 1), PHONE, None),
            (Slots("phone:{a}:{b}", 2), PHONE, None),
            (Slots("{phone}", 1), Rate("phone:{a}", 1, "10s"), "the rate 'phone:{a}'"),
            (Rate("phone:{a}:{b}", 1, "10s"), PHONE, None),
        ],
    )
    async def test_templated_gate_cannot_be_requested_by_the_name_of_another_kind_of_gate(
        self, rig: Rig, own: GateSpec, other: GateSpec, match: str | None
    ) -> None:
        await rig.declare(own, other)
        use = GateUse(name="phone:7:1", template=own.name)
        if match is not None:
            async with rig.refuses(InvalidValue, match=f"has the same name as {match}"):
                await rig.add(gates=(use,))
            return
        job = await rig.add(gates=(use,))
        assert await rig.worker.take_ids() == [job.id]

    @pytest.mark.parametrize(
        ("other", "refused"),
        [
            (Hours("site:Asia/Tokyo", "09:00-18:00", tz="Asia/Tokyo"), False),
            (Hours("site:{city}", "09:00-18:00", tz="{city}"), False),
            (Hours("site:Asia/Tokyo", "09:00-18:00", tz="UTC"), True),
            (Hours("site:Asia/Tokyo", "09:00-18:00", days="mon", tz="Asia/Tokyo"), True),
            (Hours("site:Asia/Tokyo", "09:00-17:00", tz="Asia/Tokyo"), True),
            (Hours("site:Asia/{city}", "09:00-18:00", tz="Asia/{city}", exceptions=CLOSED), True),
        ],
    )
    async def test_templated_hours_cannot_be_requested_by_the_name_of_other_hours(
        self, rig: Rig, other: GateSpec, refused: bool
    ) -> None:
        own = Hours("site:{tz}", "09:00-18:00", tz="{tz}")
        await rig.declare(own, other)
        use = use_of(own, zone="Asia/Tokyo", tz="Asia/Tokyo")
        if refused:
            # It would open and close at the times of the one that was used first.
            match = f"'{use.name}', named by '{own.name}', has the same name as the hours"
            async with rig.refuses(InvalidValue, match=match):
                await rig.add(gates=(use,))
            return
        job = await rig.add(gates=(use,))
        assert await rig.state(job.id) is State.WAITING

    @pytest.mark.parametrize("name", ["all", "lane:calls", "tenant:acme", "kind:dial"])
    async def test_templated_gate_cannot_be_requested_by_the_name_of_an_implicit_gate(
        self, rig: Rig, name: str
    ) -> None:
        await rig.declare(Slots("{name}", 1))
        async with rig.refuses(InvalidValue, match="is an implicit gate"):
            await rig.add(gates=(GateUse(name=name, template="{name}"),))

    async def test_pool_cannot_get_a_member_named_like_a_gate(self, rig: Rig) -> None:
        await rig.declare(NUMBERS, Slots("numbers/c", 1))
        async with rig.refuses(InvalidValue):
            await rig.define(SetGate(name="numbers", members=(("a", 1), ("c", 1))))
        await rig.define(SetGate(name="numbers", members=(("d", 1),)))
        async with rig.refuses(InvalidValue):
            # A reset would make it a member again.
            await rig.define(DeclareGate(spec=Slots("numbers/a", 1)))

    async def test_value_for_another_kind_of_gate_is_refused_and_writes_nothing(
        self, rig: Rig
    ) -> None:
        await rig.declare(NUMBERS)
        said = "'numbers' is of kind 'pool', which has no 'capacity'"
        async with rig.refuses(InvalidValue, match=said):
            await rig.define(SetGate(name="numbers", capacity=3, members=(("a", 1),)))
        await rig.declare(Hours("site:{tz}", "09:00-18:00", tz="{tz}"))
        said = "'site:UTC' is of kind 'hours', which has no limit of its own"
        async with rig.refuses(InvalidValue, match=said):
            await rig.define(SetGate(name="site:UTC", capacity=3))

    @pytest.mark.parametrize("name", ["all", "lane:calls", "tenant:acme", "kind:dial"])
    async def test_limit_of_an_implicit_gate_is_refused_and_writes_nothing(
        self, rig: Rig, name: str
    ) -> None:
        async with rig.refuses(InvalidValue, match=f"'{name}' has a capacity, but no limit"):
            await rig.define(SetGate(name=name, limit=4))

    async def test_invalid_values_are_refused_before_the_store_is_asked(self, rig: Rig) -> None:
        await rig.declare(LINE)
        impossible, invalid = SetGate(name="line", limit=3), SetGate(name="line", capacity=-1)
        with pytest.raises(InvalidValue, match="capacity"):
            await rig.define(impossible, invalid)
        with pytest.raises(InvalidValue, match="capacity"):
            await rig.define(invalid, revision=99)

    @each_bad_note
    async def test_change_with_an_invalid_reason_is_refused_and_writes_nothing(
        self, rig: Rig, text: str
    ) -> None:
        await rig.declare(LINE)
        closing = CloseGate(name="line", reason=text)
        for request in (
            DefineRequest(items=(closing,), author=AUTHOR),
            DefineRequest(items=(CloseGate(name="line"),), author=AUTHOR, reason=text),
        ):
            async with rig.refuses(InvalidValue, match="reason"):
                await rig.store.define(request)

    @pytest.mark.parametrize("name", ["", "nul\0", "\ud800"], ids=["empty", "nul", "surrogate"])
    async def test_gate_to_change_with_an_invalid_name_is_refused(
        self, rig: Rig, name: str
    ) -> None:
        for item in (CloseGate(name=name), OpenGate(name=name), ResetGate(name=name)):
            async with rig.refuses(InvalidValue, match="gate"):
                await rig.define(item)

    async def test_keyed_template_itself_cannot_be_closed(self, rig: Rig) -> None:
        await rig.declare(PHONE)
        with pytest.raises(CallerError):
            await rig.close_gate("phone:{phone}")

    async def test_negative_capacity_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        await rig.declare(LINE, TWILIO, NUMBERS)
        for item in (
            SetGate(name="line", capacity=-1),
            SetGate(name="rate:twilio", limit=-1),
            SetGate(name="rate:twilio", per_ms=0),
            SetGate(name="numbers", members=(("a", -1),)),
            SetGate(name=f"lane:{LANE}", capacity=-1),
        ):
            async with rig.refuses(InvalidValue):
                await rig.define(item)

    async def test_instance_is_capped_under_its_template(self, rig: Rig) -> None:
        await rig.declare(PHONE)
        await rig.cap("phone:555", 3)
        gate = await rig.gate("phone:555")
        assert (gate.capacity, gate.template, gate.overridden) == (3, "phone:{phone}", True)
        await rig.add_many(4, gates=(use_of(PHONE, phone="555"),))
        assert len(await rig.worker.take(9)) == 3

    async def test_changes_are_in_the_trail_with_who_when_and_why(self, rig: Rig) -> None:
        await rig.declare(LINE)
        rig.clock.advance(90)
        await rig.cap("line", 5)
        await rig.close_gate("line")
        trail = [line for line in (await rig.dump()).trail if line.at == rig.clock()]
        assert [line.target for line in trail] == ["line", "line"]
        assert {(line.author, line.reason) for line in trail} == {(AUTHOR, REASON)}
        assert trail[0].verb != trail[1].verb
        assert "5" in trail[0].detail

    async def test_lane_uses_declared_values_until_an_operator_sets_others(self, rig: Rig) -> None:
        code = LaneSpec(name=LANE, concurrency=3, target_ms=5_000, fair="tenant")
        hand = LaneSpec(name=LANE, concurrency=1, max_backlog=9)
        await rig.define(DeclareLane(spec=code))
        await rig.define(SetLane(spec=hand))
        await rig.define(DeclareLane(spec=code))
        (lane,) = (await rig.dump()).lanes
        assert (lane.spec, lane.overridden) == (hand, True)
        await rig.add_many(3)
        assert len(await rig.new_worker().take(9)) == 1
        await rig.define(ResetLane(name=LANE))
        (lane,) = (await rig.dump()).lanes
        assert (lane.spec, lane.overridden) == (code, False)
        assert len(await rig.new_worker().take(9)) == 2

    async def test_reset_keeps_a_lane_and_creates_none(self, rig: Rig) -> None:
        await rig.define(SetLane(spec=LaneSpec(name="quiet", concurrency=1)))
        await rig.define(ResetLane(name="quiet"), ResetLane(name="never there"))
        (lane,) = (await rig.dump()).lanes
        assert (lane.spec, lane.overridden) == (LaneSpec(name="quiet"), False)

    async def test_lane_shows_that_it_is_paused(self, rig: Rig) -> None:
        await rig.add()
        await rig.close_gate(f"lane:{LANE}")
        (lane,) = (await rig.dump()).lanes
        assert lane.paused
        await rig.open_gate(f"lane:{LANE}")
        (lane,) = (await rig.dump()).lanes
        assert not lane.paused

    async def test_gates_are_listed_by_name_in_pages_each_once(self, rig: Rig) -> None:
        await rig.declare(*(Slots(f"line-{n:02}", 1) for n in range(25)), PHONE)
        for phone in range(25):
            await rig.add(gates=(use_of(PHONE, phone=f"{phone:02}"),))
        await rig.worker.take(20)
        gates = await rig.pages(lambda at: GatesQuery(cursor=at, limit=7), 7)
        names = [gate.name for gate in gates]
        assert len(names) == len(set(names))
        assert {f"line-{n:02}" for n in range(25)} <= set(names)
        assert sum(name.startswith("phone:") and "{" not in name for name in names) == 20

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    async def test_pages_of_gates_show_pools_without_members(self, rig: Rig, limit: int) -> None:
        pool, unused, line = Pool("a-pool", {"a": 9}), Slots("b-line", 9), Slots("c-line", 9)
        await rig.declare(pool, unused, line)
        await rig.add_many(2, gates=(use_of(pool), use_of(line)))
        assert len(await rig.worker.take(2)) == 2
        gates = await rig.pages(lambda at: GatesQuery(cursor=at, limit=limit), limit)
        expected = [("a-pool", 2), ("b-line", 0), ("c-line", 2)]
        assert [(gate.name, gate.used) for gate in gates] == expected


SHUT = Hours("shop", "12:00-12:01", tz="UTC")
WIDER: list[tuple[GateSpec, GateSpec]] = [
    (Slots("line", 0), Slots("line", 2)),
    (Rate("rate", 1, "1h"), Rate("rate", 3, "1h")),
    (Rate("rate", 1, "1h"), Rate("rate", 1, "1ms")),
    (Pool("numbers", {}), Pool("numbers", {"a": 2})),
    (Pool("numbers", {"a": 0}), Pool("numbers", {"a": 0, "b": 2})),
]
KEYED: list[tuple[GateSpec, GateSpec]] = [
    (Slots("line:{n}", 0), Slots("line:{n}", 2)),
    (Rate("rate:{n}", 1, "1h"), Rate("rate:{n}", 3, "1h")),
    (Pool("numbers:{n}", {}), Pool("numbers:{n}", {"a": 2})),
    (Pool("numbers:{n}", {"a": 1}), Pool("numbers:{n}", {"a": 1, "b": 1})),
]


def named(pairs: list[tuple[GateSpec, GateSpec]]) -> list[str]:
    """Return names for the cases of a test."""
    return [f"{spec.kind}-{place}" for place, (spec, _) in enumerate(pairs)]


class RedeclareGroup(ConformanceGroup):
    """A gate whose declaration changes while jobs wait for it."""

    @pytest.mark.parametrize(("before", "after"), WIDER, ids=named(WIDER))
    async def test_wider_gate_releases_waiting_jobs_and_wakes_workers(
        self, rig: Rig, before: GateSpec, after: GateSpec
    ) -> None:
        await rig.add_many(3, gates=(before,))
        await rig.worker.take(9)
        rig.clock.advance(2)
        reply = await rig.worker.ask(9)
        assert reply.jobs == []
        async with rig.wakes(reply.seen):
            await rig.declare(after)
        assert await rig.worker.take(9) != []

    @pytest.mark.parametrize(("before", "after"), KEYED, ids=named(KEYED))
    async def test_wider_keyed_gate_feeds_parked_jobs_and_wakes_workers(
        self, rig: Rig, before: GateSpec, after: GateSpec
    ) -> None:
        jobs = await rig.add_many(2, gates=(keyed(before, n="7"),))
        await rig.worker.take(9)
        reply = await rig.worker.ask(9)
        assert reply.jobs == []
        assert await rig.state(jobs[-1].id) is State.PARKED
        async with rig.wakes(reply.seen):
            await rig.declare(after)
        assert jobs[-1].id in await rig.worker.take_ids(9)

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (Slots("line", 2), Slots("line", 1)),
            (Rate("rate", 2, "1s"), Rate("rate", 1, "1s")),
            (Pool("numbers", {"a": 2}), Pool("numbers", {"a": 1})),
            (Pool("numbers", {"a": 2}), Pool("numbers", {})),
        ],
        ids=["slots", "rate", "pool", "no member"],
    )
    async def test_narrower_gate_applies_to_waiting_jobs_at_once(
        self, rig: Rig, before: GateSpec, after: GateSpec
    ) -> None:
        await rig.add_many(2, gates=(before,))
        assert len(await rig.worker.take(1)) == 1
        await rig.declare(after)
        assert await rig.worker.take(9) == []

    async def test_redeclared_hours_apply_at_once(self, rig: Rig) -> None:
        job = await rig.add(gates=(SHUT,))
        reply = await rig.worker.ask(9)
        assert reply.jobs == []
        async with rig.wakes(reply.seen):
            await rig.declare(Hours("shop", "00:00-24:00", tz="UTC"))
        assert await rig.worker.take_ids(9) == [job.id]

    @pytest.mark.parametrize("name", ["numbers", "numbers:{n}"], ids=["shared", "keyed"])
    @pytest.mark.parametrize(
        ("members", "said"),
        [
            ({}, "pool {} has no members"),
            ({"a": 0, "b": 0}, "pool {} has no member with a capacity above 0"),
        ],
        ids=["none", "of none"],
    )
    async def test_pool_that_can_never_open_says_so(
        self, rig: Rig, name: str, members: dict[str, int], said: str
    ) -> None:
        pool = Pool(name, members)
        await rig.declare(pool)
        use = use_of(pool, n="7")
        job = await rig.add(gates=(use,))
        assert await rig.worker.take(9) == []
        why = await rig.why(job.id)
        assert (why.shown, why.never_fits) == ("blocked", (use.name,))
        assert said.format(use.name) in why.sentence
        assert "full" not in why.sentence

    @pytest.mark.parametrize("name", ["numbers", "numbers:{n}"], ids=["shared", "keyed"])
    async def test_permit_of_a_removed_member_stays_known_until_released(
        self, rig: Rig, name: str
    ) -> None:
        pool = Pool(name, {"a": 1, "b": 1})
        await rig.declare(pool)
        use = use_of(pool, n="7")
        jobs = await rig.add_many(4, gates=(use,))
        first, second = await rig.worker.take(9)
        await rig.worker.report(HandedOver(first.id, first.run, key="sid", timeout_ms=60_000))
        await rig.declare(Pool(name, {"b": 1}))
        await rig.check()
        gone = await rig.gate(f"{use.name}/a")
        assert (gone.kind, gone.capacity, gone.used) == ("slots", 0, 1)
        assert [holder.job for holder in gone.holders] == [first.id]
        assert (await rig.view(first.id)).runs[-1].permits == {use.name: "a"}
        await rig.signal("sid")
        await rig.check()
        assert await rig.used(f"{use.name}/a") == 0
        assert await rig.worker.take(9) == []
        await rig.worker.finish(second)
        (run,) = await rig.worker.take(9)
        assert (run.id, dict(run.members)) == (jobs[2].id, {use.name: "b"})

    async def test_redeclared_member_counts_permits_still_in_use(self, rig: Rig) -> None:
        pool = Pool("numbers", {"a": 1})
        await rig.add_many(2, gates=(pool,))
        run = await rig.worker.take_one()
        await rig.declare(Pool("numbers", {}))
        await rig.declare(pool)
        assert await rig.worker.take(9) == []
        await rig.worker.finish(run)
        assert len(await rig.worker.take(9)) == 1

    async def test_permit_of_a_removed_member_can_be_released_by_force(self, rig: Rig) -> None:
        pool = Pool("numbers", {"a": 1})
        run = await rig.start(gates=(pool,))
        await rig.declare(Pool("numbers", {}))
        assert await rig.store.release_permit("numbers/a", run.id, "ann", "stuck")
        assert await rig.used("numbers/a") == 0
