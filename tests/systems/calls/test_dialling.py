"""Dialling: at most once, and again, or by another provider, only after a definite refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from headway.core.errors import StoreUnavailable
from headway.core.state import State
from headway.runtime.job import Job
from headway.runtime.timing import Timing
from headway.stores import open_store
from headway.stores.memory.store import MemoryStore
from headway.systems.calls import stages
from headway.systems.calls.catalogue import FRESH_S, RevisionRecord, TemplateRecord
from headway.systems.calls.context import CallsContext
from headway.systems.calls.lead import LeadArgs
from headway.testing.faulty import Reply, StoreProxy
from tests.systems.calls.calls_rig import NUMBER, OTHER, PHONE, LiveClock, calling


@pytest.fixture
def pending_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the runs after which a lead's row in a source table is made pending again."""
    refs, again = list[str](), stages._put_row_back

    async def noted(context: CallsContext, job: Job, args: LeadArgs) -> None:
        refs.append(job.ref)
        await again(context, job, args)

    monkeypatch.setattr(stages, "_put_row_back", noted)
    return refs


async def test_callee_refused_by_the_provider_is_retried_as_the_template_says(
    tmp_path: Path, pending_again: list[str]
) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        await calls.template(retry_offset="0s", max_retry=2)
        calls.carrier.person(PHONE, "refused")
        told = await calls.finished(await calls.lead())
        assert told["outcome"] == "FAILED"
        assert [one["outcome"] for one in told["attempts"]] == ["FAILED"] * 3
        assert "2" in told["attempts"][0]["detail"]
        assert told["attempts"][2]["detail"] == told["attempts"][0]["detail"]
        assert pending_again == [f"{told['id']}:{one['run']}" for one in told["attempts"][:2]]
        # A normal outcome for a campaign's lead, not a job that needs attention.
        assert (await calls.job(told["id"])).state is State.SUCCEEDED
        assert not calls.calls_to()
        await calls.audit()


async def test_retry_by_an_operator_gives_all_calls_again(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        await calls.template(retry_offset="1h", max_retry=1)
        calls.carrier.person(PHONE, "refused")
        lead = await calls.lead()

        async def called(number: int) -> None:
            async def done() -> bool:
                told = await calls.get_lead(lead)
                waits = (await calls.job(lead)).state is State.SCHEDULED
                return waits and len(told["attempts"]) == number

            await calls.until(done, f"called {number} times")

        await called(1)
        for move in ("cancel", "retry"):
            reply = await calls.call("POST", f"/v1/jobs/{lead}/{move}", {})
            assert reply.status_code == 200, reply.text
        # The second of two calls would be the last one.
        await called(2)


async def test_number_refused_by_the_provider_rests_and_another_is_used(
    tmp_path: Path, pending_again: list[str]
) -> None:
    async with calling(tmp_path, numbers=[OTHER]) as calls:
        await calls.number(NUMBER)
        calls.carrier.person(PHONE, "talks")
        lead = await calls.lead()
        await calls.until_why(lead, "calls.numbers", "is closed by", "until")
        assert len(pending_again) == 1
        told = await calls.get_lead(lead)
        assert told["attempts"][0]["outcome"] == "NUMBER_UNAVAILABLE"
        await calls.number(OTHER)
        told = await calls.finished(lead)
        assert told["outcome"] == "COMPLETED"
        assert [one["number"] for one in told["attempts"]] == [NUMBER, OTHER]
        await calls.audit()


async def test_lead_whose_numbers_are_all_refused_ends_with_that_outcome(tmp_path: Path) -> None:
    settings = {"number_rest": "1ms", "most_refused": 3}
    async with calling(tmp_path, settings=settings, numbers=[OTHER]) as calls:
        await calls.number(NUMBER)
        told = await calls.finished(await calls.lead())
        assert told["outcome"] == "NUMBER_UNAVAILABLE"
        assert told["attempt_count"] == 3


async def test_too_many_requests_rest_the_number_and_cost_the_lead_nothing(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        await calls.template(max_retry=0)
        calls.carrier.person(PHONE, "too_many", "talks")
        lead = await calls.lead()

        await calls.until_why(lead, "calls.numbers")
        (first,) = (await calls.get_lead(lead))["attempts"]
        assert first["outcome"] == "NUMBER_UNAVAILABLE"
        await calls.open(f"calls.numbers/{NUMBER}")
        told = await calls.finished(lead)
        assert told["outcome"] == "COMPLETED"
        assert len(calls.calls_to()) == 1


async def test_refused_number_uses_no_retry_of_a_later_call(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        await calls.template(max_retry=1, retry_on=["BUSY"], retry_offset="1ms")
        calls.carrier.person(PHONE, "too_many", "busy", "talks")
        lead = await calls.lead()
        await calls.until_why(lead, "calls.numbers")
        await calls.open(f"calls.numbers/{NUMBER}")
        told = await calls.finished(lead)
        outcomes = [one["outcome"] for one in told["attempts"]]
        assert outcomes == ["NUMBER_UNAVAILABLE", "BUSY", "COMPLETED"]


@pytest.mark.parametrize("trouble", ["unsure", "cut"])
async def test_call_with_unknown_outcome_is_not_placed_again(tmp_path: Path, trouble: str) -> None:
    other = {"simulated": {"answer": 1.0, "speed": 1_000}}
    async with calling(tmp_path, telephony=other) as calls:
        await calls.number()
        await calls.template(retry_offset="0s", providers=["simulated"])
        simulated = calls.system.context.parts.telephony.voices["simulated"].network.ledger  # type: ignore[attr-defined]  # the simulated one's own
        calls.carrier.person(PHONE, trouble)
        told = await calls.finished(await calls.lead())
        assert told["attempt_count"] == 1
        (call,) = calls.calls_to()
        assert call.plan.ref.startswith(told["id"])
        assert not calls.carrier.network.ledger.twice()
        assert not simulated.calls
        assert told["outcome"] == "COMPLETED"


class Still(Timing):
    """A clock that only the test advances."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


async def test_worker_frozen_at_the_hand_over_makes_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing, hand_over = Still(), Job.hand_over

    async def stand_still(job: Job, **options: Any) -> None:
        await hand_over(job, **options)
        timing.now_s += 1_200

    monkeypatch.setattr(Job, "hand_over", stand_still)
    async with calling(tmp_path, timing=timing) as calls:
        await calls.number()
        lead = await calls.lead()
        told = await calls.until_status(lead, "PROCESSING", attempt_count=1)

        async def is_through() -> bool:
            return (await calls.job(lead)).worker is None

        await calls.until(is_through, "through")
        assert not calls.calls_to()
        assert (await calls.get_lead(lead))["attempts"] == told["attempts"]


async def test_lead_waiting_for_the_directory_uses_up_none_of_its_customers_calls(
    tmp_path: Path,
) -> None:
    clock, timing = LiveClock(), Still()
    store = open_store("memory://", clock=clock)
    async with calling(tmp_path, store=store, timing=timing) as calls:
        await calls.number()
        await calls.close("calls.numbers")
        lead = await calls.lead()
        await calls.until_why(lead, "calls.numbers")
        directory = calls.system.context.directory
        await directory.close()
        timing.now_s += 2 * FRESH_S
        await calls.open("calls.numbers")
        for runs in range(2, 10):

            async def is_postponed(least: int = runs) -> bool:
                job = await calls.job(lead)
                return len(job.runs) >= least and job.state is State.SCHEDULED

            await calls.until(is_postponed, "postponed")
            await calls.jump(clock, 5_000)
        assert not calls.calls_to()
        await directory.open()
        await calls.jump(clock, 5_000)
        assert (await calls.finished(lead))["outcome"] == "COMPLETED"
    await store.close()


@pytest.mark.parametrize("reader", ["intake", "worker"])
async def test_template_of_another_process_is_known_at_once(tmp_path: Path, reader: str) -> None:
    # The clock stands still, so that what was read before never becomes too old.
    async with calling(tmp_path, timing=Still()) as calls:
        await calls.number()
        await calls.close("lane:calls")
        catalogue = calls.system.context.catalogue
        before = await catalogue.read()
        async with calls.system.context.directory.change() as session:
            (await session.get_one(RevisionRecord, 1)).revision += 1
            session.add(TemplateRecord(name="new", body={}, checks_at=0))
        if reader == "worker":
            await catalogue.newest()
        lead = await calls.lead(template="new")
        if reader == "worker":
            # As in a process that has not created the lead.
            catalogue._contents = before
        await calls.open("lane:calls")
        assert (await calls.finished(lead))["outcome"] == "COMPLETED"


unreadable = ContextVar("unreadable", default=False)


class UnreadableStore(StoreProxy):
    """A store that cannot be read by a task in which `unreadable` is set."""

    async def _call(self, name: str, operation: Callable[[], Awaitable[Reply]]) -> Reply:
        if name == "read" and unreadable.get():
            message = "the store cannot be read"
            raise StoreUnavailable(message)
        return await operation()


async def test_refused_call_ends_its_run_though_the_store_could_not_be_read_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = stages._settle_refused

    async def while_unreadable(*given: Any) -> None:
        unreadable.set(True)
        await refused(*given)

    monkeypatch.setattr(stages, "_settle_refused", while_unreadable)
    async with calling(tmp_path, store=UnreadableStore(MemoryStore())) as calls:
        await calls.number()
        await calls.template(retry_on=[])
        calls.carrier.person(PHONE, "refused")
        told = await calls.finished(await calls.lead())
        assert told["outcome"] == "FAILED"
        await calls.audit()


async def test_second_provider_is_used_only_after_a_definite_refusal(tmp_path: Path) -> None:
    second = {"simulated": {"answer": 1.0, "speed": 1_000}}
    async with calling(tmp_path, telephony=second, numbers=[OTHER]) as calls:
        await calls.number(NUMBER)
        await calls.template(providers=["simulated"])
        simulated = calls.system.context.parts.telephony.voices["simulated"].network.ledger  # type: ignore[attr-defined]  # the simulated one's own
        told = await calls.finished(await calls.lead())
        (attempt,) = told["attempts"]
        assert (attempt["provider"], attempt["outcome"]) == ("simulated", "COMPLETED")
        assert len(simulated.calls) == 1
        calls.carrier.network.numbers.add(NUMBER)
        calls.carrier.person("+14155550111", "unsure")
        told = await calls.finished(await calls.lead("+14155550111"))
        assert told["attempt_count"] == 1
        assert len(simulated.calls) == 1
        assert len(calls.calls_to("+14155550111")) == 1


async def test_spoken_text_is_filled_in_from_the_payload(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        await calls.template(say="Hello {name}, {n} items, {missing}{nested}.")
        payload = {"name": "Ada <&>", "n": 3, "nested": {"x": 1}}
        await calls.finished(await calls.lead(payload=payload))
        (call,) = calls.calls_to()
        assert call.heard == ["Hello Ada <&>, 3 items, ."]


async def test_characters_that_xml_cannot_contain_are_spoken_as_a_pause(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        await calls.template(say="Hello\x01{name}.")
        await calls.finished(await calls.lead(payload={"name": "Ada\0\ufffe\nB\U0001f600"}))
        (call,) = calls.calls_to()
        assert (call.heard, call.problems) == (["Hello Ada  \nB\U0001f600."], [])


async def test_template_whose_script_the_provider_refuses_closes_no_number(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        await calls.template(max_retry=0)
        # As an earlier version may have stored it.
        async with calls.system.context.directory.change() as session:
            record = await session.get_one(TemplateRecord, "default")
            record.body = {**record.body, "fetch": "http://["}
            await session.execute(
                update(RevisionRecord).values(revision=RevisionRecord.revision + 1)
            )
        await calls.system.context.catalogue.newest()
        told = await calls.finished(await calls.lead())
        assert (told["outcome"], told["attempt_count"]) == ("FAILED", 1)
        assert "21205" in told["reason"]
        assert (await calls.ask("/v1/gates/calls.numbers"))["open"]


async def test_too_long_text_ends_its_lead_and_costs_no_number_its_turn(
    tmp_path: Path,
) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        await calls.template(say="Hello {name}.")
        told = await calls.finished(await calls.lead(payload={"name": "a" * 4_000}))
        assert (told["outcome"], told["attempt_count"]) == ("PRECHECK_FAILED", 0)
        assert "longer than 4000" in told["reason"]
        fits = await calls.lead("+14155550111", payload={"name": "a" * 3_000})
        assert (await calls.finished(fits))["outcome"] == "COMPLETED"
