"""The expected properties of a whole history, checked from the record alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from headway.carrier.ledger import CarrierLedger
from headway.contract.store import Store
from headway.contract.views import AuditQuery, JobsQuery, JobView
from headway.core.cascade import Answer
from headway.core.state import FINAL, State
from headway.systems.field_service.request import read_request

FOREVER = 2**62


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """The record of service requests, and of the jobs that followed from them.

    Attributes:
        offers: the requests, with their runs.
        alerts: alerts to dispatchers.
        ended: follow-up jobs of ended offers.
        differences: differences found by the store's audit.
    """

    offers: list[JobView]
    alerts: list[JobView]
    ended: list[JobView]
    differences: tuple[object, ...] = ()


async def all_jobs(store: Store, kind: str) -> list[JobView]:
    """Return every job of a kind, with its runs and trail."""
    found: list[JobView] = []
    cursor = None
    while True:
        page = await store.read(
            JobsQuery(kind=kind, runs=True, trail=True, cursor=cursor, limit=500)
        )
        found += page.rows
        cursor = page.cursor
        if cursor is None:
            return found


async def read_story(store: Store) -> Story:
    """Return the whole record of a store."""
    audit = await store.read(AuditQuery())
    return Story(
        differences=tuple(audit.differences),
        offers=await all_jobs(store, "offer"),
        alerts=await all_jobs(store, "alert_dispatcher"),
        ended=await all_jobs(store, "offer_ended"),
    )


async def check_record(store: Store, dispatchers: Iterable[str]) -> Counter[str]:
    """Check a store's record against the guarantees; see `check_story`."""
    return check_story(await read_story(store), dispatchers)


def check_story(story: Story, dispatchers: Iterable[str]) -> Counter[str]:
    """Check a record against the guarantees.

    Args:
        story: the record.
        dispatchers: ids of the dispatchers to be alerted.

    Returns:
        How many requests ended in each way.
    """
    assert story.differences == ()
    for one in story.offers:
        _one_winner(one)
    _one_at_a_time(story.offers)
    _alerted_once(story, set(dispatchers))
    return Counter(_fate(one) for one in story.offers)


def _fate(offer: JobView) -> str:
    assert offer.cascade is not None
    if offer.state is State.AWAITING:
        assert offer.cascade.accepted, f"{offer.id} is neither assigned nor pending"
        return "assigned"
    assert offer.state in FINAL, f"{offer.id} is {offer.state}: {offer.reason}"
    if offer.state is State.DEAD:
        assert offer.reason == "exhausted", offer.reason
    return str(offer.state)


def _one_winner(offer: JobView) -> None:
    assert offer.cascade is not None
    said = [one.answer for one in offer.cascade.asked]
    assert said.count(Answer.ACCEPTED) <= 1, f"{offer.id} has two winners"
    if Answer.ACCEPTED in said:
        assert said[-1] is Answer.ACCEPTED, f"somebody was asked after {offer.id} was taken"
    asked = [one for one in offer.cascade.asked if one.answer is not Answer.UNFIT]
    assigned = read_request(offer.args).assigned
    if assigned is not None and asked and asked[-1].candidate == assigned.to:
        # Assigned by a dispatcher, which may be to a technician who had been asked.
        del asked[-1]
    counts = Counter(one.candidate for one in asked)
    assert all(count == 1 for count in counts.values()), f"{offer.id} asked one twice: {asked}"


def _one_at_a_time(offers: list[JobView]) -> None:
    """Check that no technician has two offers or requests at once, and no request two offers."""
    by_technician: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for offer in offers:
        spans = [
            (run.claimed_at, FOREVER if run.ended_at is None else run.ended_at, f"{offer.id}")
            for run in offer.runs
        ]
        _apart(spans, f"request {offer.id}")
        for run, span in zip(offer.runs, spans, strict=True):
            by_technician[run.candidate].append(span)
    for technician, spans in by_technician.items():
        _apart(spans, f"technician {technician}")


def _apart(spans: list[tuple[int, int, str]], whose: str) -> None:
    ordered = sorted(spans)
    for before, after in pairwise(ordered):
        assert before[1] <= after[0], f"{whose}: {before} and {after} at once"


def _alerted_once(story: Story, dispatchers: set[str]) -> None:
    told = Counter((one.subject, str(one.args)) for one in story.alerts)
    # A request that no technician accepted can be assigned, and end so again in its next life.
    lives = {one.id: one.life for one in story.offers}
    twice = [one for one, count in told.items() if count > lives[one[0] or ""]]
    assert twice == [], f"alerted twice in one life: {twice}"
    failed = [one.id for one in story.ended if one.state is not State.SUCCEEDED]
    assert failed == [], f"what follows an end did not: {failed}"
    for offer in story.offers:
        mine = [one for one in story.alerts if one.subject == offer.id]
        lives = offer.life if offer.state is State.DEAD else offer.life - 1
        assert len(mine) <= lives * len(dispatchers), f"too many were told of {offer.id}"
        if offer.state is State.DEAD:
            assert len(mine) >= len(dispatchers), f"nobody was told of {offer.id}"
        elif offer.life == 1:
            assert mine == [], f"dispatchers were told of {offer.id}, which is {offer.state}"


def calls_at_once(ledger: CarrierLedger) -> list[str]:
    """Return who was called while another call to the same phone was in progress."""
    by_phone: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for call in ledger.calls.values():
        span = (call.placed_at, FOREVER if call.ended_at is None else call.ended_at)
        by_phone[call.plan.to].append(span)
    return [
        f"{phone}: {before} and {after}"
        for phone, spans in by_phone.items()
        for before, after in pairwise(sorted(spans))
        if before[1] > after[0]
    ]
