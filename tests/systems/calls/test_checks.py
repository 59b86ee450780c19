"""Pre-checks: run before a line is requested, repeated if stale, and what they decide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from headway.contract.views import GatesQuery
from headway.runtime.timing import REAL, Timing
from headway.stores import open_store
from headway.systems.calls import catalogue_routes
from headway.systems.calls.checks import Checking, LeadRefused, LeadToCheck
from headway.systems.calls.template import HttpCheckBody, Template
from headway.systems.telephony import http as connections
from tests.systems.calls.calls_rig import NUMBER, PHONE, Calls, LiveClock, calling
from tests.systems.calls.check_service import CheckService, check_service

LEAD = LeadToCheck(lead_id="1", phone=PHONE, tz="UTC", reseller="acme", template="t", payload=None)


LIMIT_S, RECHECK_S = 59, 9


class Patience(Timing):
    """Real time, but limits of these lengths expire only when the test says so."""

    def __init__(self) -> None:
        self._limits: list[asyncio.Timeout] = []

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        if seconds not in {LIMIT_S, RECHECK_S}:
            return super().limit(seconds)
        self._limits.append(asyncio.timeout(None))
        return self._limits[-1]

    def over(self) -> None:
        limits, self._limits = self._limits, []
        for one in limits:
            one.reschedule(asyncio.get_running_loop().time())


@pytest.fixture
def patience() -> Patience:
    return Patience()


@pytest.fixture
async def far(patience: Patience) -> AsyncIterator[CheckService]:
    async with check_service() as found:
        found.silent = patience.over
        yield found


@pytest.fixture
async def calls(tmp_path: Path, patience: Patience) -> AsyncIterator[Calls]:
    async with calling(tmp_path, timing=patience) as found:
        await found.number()
        yield found


def http(far: CheckService, **more: Any) -> dict[str, Any]:
    return {"check": "http", "url": far.url, "tries": 1, **more}


@pytest.mark.parametrize(
    ("check", "phone", "why"),
    [
        ({"check": "blacklist", "phones": ["+14155550100"]}, PHONE, "blacklist"),
        ({"check": "blacklist", "phones": ["+1900*"]}, "+19005550100", "blacklist"),
        ({"check": "validity"}, "+11155550100", "not a number"),
        ({"check": "validity"}, "+4915550100", "not a number"),
        ({"check": "validity", "countries": ["+44"]}, PHONE, "country"),
    ],
)
async def test_refusing_check_finishes_the_lead_with_its_reason(
    calls: Calls, check: dict[str, Any], phone: str, why: str
) -> None:
    await calls.template("checked", checks=[check])
    told = await calls.finished(await calls.lead(phone, template="checked"))
    assert told["outcome"] == "PRECHECK_FAILED"
    assert why in told["reason"]
    assert told["attempt_count"] == 0
    passes = await calls.finished(await calls.lead("+442079460123", template="checked"))
    assert passes["outcome"] == "COMPLETED"


async def test_callers_service_is_asked_and_obeyed(calls: Calls, far: CheckService) -> None:
    check = http(far, field="answer.call", expected="yes")
    await calls.template("asked", checks=[check])
    far.answers = [{"answer": {"call": "yes"}}, {"answer": {"call": "no"}}]
    lead = await calls.lead(template="asked", payload={"n": 1})
    assert (await calls.finished(lead))["outcome"] == "COMPLETED"
    assert far.asked[0] == {
        "lead_id": lead,
        "phone": PHONE,
        "tz": "America/Los_Angeles",
        "reseller": "acme",
        "template": "asked",
        "payload": {"n": 1},
    }
    told = await calls.finished(await calls.lead("+14155550111", template="asked"))
    assert told["outcome"] == "PRECHECK_FAILED"
    assert "answer.call is 'no'" in told["reason"]


@pytest.mark.parametrize(
    ("expected", "answer"), [(True, 1), (1, True), (0, False), (False, 0), ("1", 1), (None, False)]
)
async def test_answer_of_an_unexpected_type_is_a_no(
    far: CheckService, expected: Any, answer: Any
) -> None:
    far.answers = [{"allowed": answer}, {"allowed": expected}]
    checking = Checking(REAL)
    options = HttpCheckBody(**http(far, timeout=30_000, expected=expected))
    template = Template(name="t", checks=[options])
    with pytest.raises(LeadRefused, match=f"allowed is {answer!r}"):
        await checking.check(template, LEAD)
    await checking.check(template, LEAD)
    await checking.close()


@pytest.mark.parametrize(
    ("policy", "outcome"), [("proceed", "COMPLETED"), ("skip", "PRECHECK_FAILED")]
)
@pytest.mark.parametrize("trouble", [None, 500, {"else": 1}, 302])
async def test_silent_service_is_asked_again_and_then_its_policy_decides(
    calls: Calls, far: CheckService, policy: str, outcome: str, trouble: Any
) -> None:
    far.answers = [trouble]
    check = http(far, tries=3, timeout=f"{LIMIT_S}s", on_failure=policy)
    await calls.template("asked", checks=[check])
    told = await calls.finished(await calls.lead(template="asked"))
    assert told["outcome"] == outcome
    assert len(far.asked) == 3
    if trouble is None and policy == "skip":
        assert told["reason"] == "PRECHECK_FAILED: the check failed: TimeoutError"


@pytest.mark.parametrize("trouble", [..., b'"\xff"', b"[" * 60_000], ids=["drips", "bytes", "deep"])
async def test_unreadable_or_endless_answer_counts_as_none(
    far: CheckService, patience: Patience, trouble: Any
) -> None:
    far.answers = [trouble]
    checking = Checking(patience)
    options = HttpCheckBody(check="http", url=far.url, timeout=LIMIT_S * 1_000, tries=2)
    with pytest.raises(LeadRefused, match="the check failed"):
        await checking.check(Template(name="t", checks=[options]), LEAD)
    assert len(far.asked) == 2
    await checking.close()


async def test_no_line_is_held_while_a_lead_is_checked(calls: Calls, far: CheckService) -> None:
    far.answers, far.silent = [None], lambda: None
    await calls.template("asked", checks=[http(far, timeout="1m")])
    lead = await calls.lead(template="asked")
    await far.held.wait()
    (gate,) = (await calls.store.read(GatesQuery(names=("calls.numbers",)))).rows
    assert gate.used == 0
    assert (await calls.get_lead(lead))["status"] == "BACKLOG"
    assert (await calls.finished(await calls.lead("+14155550111")))["outcome"] == "COMPLETED"
    far.free.set()
    assert (await calls.finished(lead))["outcome"] == "COMPLETED"


async def test_removed_or_changed_template_applies_to_waiting_leads(calls: Calls) -> None:
    await calls.change(NUMBER, status="DISABLED")
    await calls.template("t")
    await calls.template("u")
    first, second = [await calls.lead(f"+1415555011{n}", template="tu"[n]) for n in range(2)]
    await calls.until_why(first, "calls.numbers")
    await calls.until_why(second, "calls.numbers")
    assert (await calls.call("DELETE", "/templates/u")).status_code == 204
    told = await calls.finished(second)
    assert told["outcome"] == "PRECHECK_FAILED"
    assert "no template 'u'" in told["reason"]
    await calls.template("t", say="Other words.")
    await calls.change(NUMBER, status="AVAILABLE")
    await calls.finished(first)
    (call,) = calls.calls_to("+14155550110")
    assert call.heard == ["Other words."]


async def test_stale_check_is_repeated_before_the_dial(tmp_path: Path, far: CheckService) -> None:
    clock = LiveClock()
    store = open_store("memory://", clock=clock)
    async with calling(tmp_path, store=store) as calls:
        await calls.template("asked", checks=[http(far)], check_valid="5m")
        fresh, stale = [await calls.lead(f"+1415555011{n}", template="asked") for n in range(2)]
        await calls.until_why(fresh, "calls.numbers")
        await calls.until_why(stale, "calls.numbers")
        assert len(far.asked) == 2
        far.answers = [{"allowed": False}]
        await calls.jump(clock, 300_000 + 60_000)
        await calls.number()
        for lead in (fresh, stale):
            told = await calls.finished(lead)
            assert (told["outcome"], told["attempt_count"]) == ("PRECHECK_FAILED", 0)
        assert len(far.asked) == 4
        await calls.audit()
    await store.close()


async def test_lead_checked_while_new_checks_wait_for_another_change_is_checked_again(
    tmp_path: Path, far: CheckService, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, leads, changing = LiveClock(), list[str](), catalogue_routes.changing
    store = open_store("memory://", clock=clock)
    async with calling(tmp_path, store=store) as calls:

        @asynccontextmanager
        async def after_another(*args: Any) -> AsyncGenerator[AsyncSession]:
            await calls.jump(clock, 10_000)
            leads.append(await calls.lead(template="asked"))
            await calls.until_why(leads[0], "calls.numbers")
            async with changing(*args) as session:
                yield session

        await calls.template("asked")
        with monkeypatch.context() as patched:
            patched.setattr(catalogue_routes, "changing", after_another)
            await calls.template("asked", checks=[http(far)])
        far.answers = [{"allowed": False}]
        await calls.number()
        assert (await calls.finished(leads[0]))["outcome"] == "PRECHECK_FAILED"
    await store.close()


async def test_fresh_check_is_not_repeated(calls: Calls, far: CheckService) -> None:
    await calls.change(NUMBER, status="DISABLED")
    await calls.template("asked", checks=[http(far)])
    lead = await calls.lead(template="asked")
    await calls.until_why(lead, "calls.numbers")
    await calls.change(NUMBER, status="AVAILABLE")
    await calls.finished(lead)
    assert len(far.asked) == 1


async def test_check_at_the_dial_holds_its_line_for_a_bounded_time(
    calls: Calls, far: CheckService
) -> None:
    far.answers = [{"allowed": True}, None]
    template = {"check_valid": 0, "recheck_within": f"{RECHECK_S}s"}
    await calls.template("skips", checks=[http(far, timeout="1m")], **template)
    await calls.template(
        "proceeds", checks=[http(far, timeout="1m", on_failure="proceed")], **template
    )
    await calls.change(NUMBER, status="DISABLED")
    skipped = await calls.lead(template="skips")
    await calls.until_why(skipped, "calls.numbers")
    await calls.change(NUMBER, status="AVAILABLE")
    told = await calls.finished(skipped)
    assert told["outcome"] == "PRECHECK_FAILED"
    assert f"{RECHECK_S * 1_000} ms" in told["reason"]


async def test_more_concurrent_checks_than_pooled_connections_are_all_asked(
    far: CheckService,
) -> None:
    far.answers = [None]
    checking = Checking(REAL)
    options = HttpCheckBody(check="http", url=far.url, timeout=30_000, tries=1)
    template = Template(name="t", checks=[options])
    async with asyncio.TaskGroup() as group:
        for _ in range(110):
            group.create_task(checking.check(template, LEAD))
        while len(far.asked) < 110:
            await REAL.pause(0.01)
        far.free.set()
    await checking.close()


async def test_blacklisted_phone_is_not_called_though_it_was_checked_before(
    tmp_path: Path, far: CheckService
) -> None:
    clock = LiveClock()
    store = open_store("memory://", clock=clock)
    async with calling(tmp_path, store=store) as calls:
        await calls.template("t", checks=[http(far)])
        lead = await calls.lead(template="t")
        await calls.until_why(lead, "calls.numbers")
        await calls.jump(clock, 60_000)
        listed = {"check": "blacklist", "phones": [PHONE]}
        await calls.template("t", checks=[listed, http(far)])
        await calls.number()
        told = await calls.finished(lead)
        assert (told["outcome"], told["attempt_count"]) == ("PRECHECK_FAILED", 0)
        assert "blacklist" in told["reason"]
        assert not calls.calls_to()
    await store.close()


async def test_connections_are_reused_while_many_others_are_busy(
    far: CheckService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEPT_S", 3_600)
    busy = connections.KEPT + 10
    far.answers = [*[None] * busy, {"allowed": True}]
    checks = Checking(REAL)
    template = Template(name="t", checks=[HttpCheckBody(**http(far, timeout=60_000))])
    arrived = asyncio.Semaphore(0)
    far.silent = arrived.release
    held = [asyncio.create_task(checks.check(template, LEAD)) for _ in range(busy)]
    for _ in held:
        await arrived.acquire()
    for _ in range(3):
        await checks.check(template, LEAD)
    assert len(far.links) == busy + 1
    far.free.set()
    await asyncio.gather(*held)
    async with asyncio.TaskGroup() as group:
        for _ in range(busy):
            group.create_task(checks.check(template, LEAD))
    assert len(far.links) <= busy + 1 + busy - connections.KEPT
    async with check_service() as other:
        elsewhere = Template(name="t", checks=[HttpCheckBody(**http(other))])
        await checks.check(elsewhere, LEAD)
        assert len(other.asked) == len(other.links) == 1
    await checks.close()
