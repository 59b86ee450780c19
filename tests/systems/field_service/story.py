"""What a whole history must show, read from the record alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

from headway.contract.store import Store
from headway.contract.views import AuditQuery, JobsQuery, JobView
from headway.core.cascade import Answer
from headway.core.state import FINAL, State

FOREVER = 2**62


async def all_jobs(store: Store, kind: str) -> list[JobView]:
    """Each job of a kind, with its runs and trail."""
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


async def check_record(store: Store, dispatchers: Iterable[str]) -> Counter[str]:
    """Holds the record against what is promised.

    Args:
        store: where the jobs are.
        dispatchers: the ids of those who are to be alerted.

    Returns:
        How many requests ended how.
    """
    offers = await all_jobs(store, "offer")
    for one in offers:
        _one_winner(one)
    _one_at_a_time(offers)
    await _alerted_once(store, offers, set(dispatchers))
    audit = await store.read(AuditQuery())
    assert audit.differences == ()
    return Counter(_fate(one) for one in offers)


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
    assert said.count(Answer.ACCEPTED) <= 1
    if Answer.ACCEPTED in said:
        assert said[-1] is Answer.ACCEPTED, "somebody was asked after it was taken"
    asked = Counter(one.candidate for one in offer.cascade.asked if one.answer is not Answer.UNFIT)
    assert all(count == 1 for count in asked.values()), asked


def _one_at_a_time(offers: list[JobView]) -> None:
    """No technician has two offers or requests at once, and no request two offers."""
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


async def _alerted_once(store: Store, offers: list[JobView], dispatchers: set[str]) -> None:
    alerts = await all_jobs(store, "alert_dispatcher")
    ended = await all_jobs(store, "offer_ended")
    told = Counter((one.subject, str(one.args)) for one in alerts)
    assert all(count == 1 for count in told.values())
    assert {one.state for one in ended} <= {State.SUCCEEDED}
    for offer in offers:
        mine = [one for one in alerts if one.subject == offer.id]
        lives = offer.life if offer.state is State.DEAD else offer.life - 1
        assert len(mine) <= lives * len(dispatchers)
        if offer.state is State.DEAD:
            assert len(mine) >= len(dispatchers), f"nobody was told of {offer.id}"
        elif offer.life == 1:
            assert mine == [], f"dispatchers were told of {offer.id}, which is {offer.state}"
