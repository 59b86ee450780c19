"""The words of the live page: what a dispatcher reads of each who was asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.systems.field_service.live.feed import Board, fragment
from headway.systems.field_service.request import Customer, Position, Status
from headway.systems.field_service.told import AskedView, ServiceRequest

REQUEST = ServiceRequest(
    id="r1",
    status=Status.DISPATCHING,
    customer=Customer(name="Bo Li", phone="+14155550100"),
    address="",
    position=Position(lat=40.714347328614714, lon=-73.98381501486844),
    skills=(),
    urgency="normal",
    description="",
    key=None,
    technician=None,
    offer=None,
    asked=(),
    left=("bob",),
    reason="",
    created_at=0,
    finished_at=None,
    dispatched=1,
)


def shown(request: ServiceRequest) -> str:
    """The board with this request, without its line ends."""
    board = Board(now=0, requests=(request,), names={"ada": "Ada"})
    return " ".join(fragment(board).split())


@pytest.mark.parametrize(
    ("said", "reason", "told"),
    [
        ("declined", "by call", "declined (by call)"),
        ("declined", "busy", "not reached (busy)"),
        ("declined", "no-answer", "not reached (no-answer)"),
        ("timeout", "no answer in time", "no answer in time"),
        ("passed_over", "has another request", "passed over (has another request)"),
        ("accepted", "", "accepted"),
    ],
)
def test_the_page_says_what_became_of_an_offer_and_says_it_once(
    said: str, reason: str, told: str
) -> None:
    asked = AskedView(technician="ada", said=said, reason=reason, asked_at=0, at=0)
    assert f"<b>Ada</b> {told} <time>" in shown(replace(REQUEST, asked=(asked,)))


def test_a_place_without_an_address_is_told_to_a_metre() -> None:
    assert "<p>40.71435, -73.98382 </p>" in shown(REQUEST)


def test_who_would_be_next_is_shown_only_while_somebody_may_be_asked() -> None:
    assert "next: bob" in shown(REQUEST)
    assert "next:" not in shown(replace(REQUEST, status=Status.ASSIGNED, technician="ada"))
