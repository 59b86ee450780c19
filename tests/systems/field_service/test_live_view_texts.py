"""The text on the board: what a dispatcher reads about each technician who was asked."""

from __future__ import annotations

import pytest

from headway.systems.field_service.live_view import answer
from headway.systems.field_service.messages import place
from headway.systems.field_service.request import Position
from headway.systems.field_service.views import AskedView


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
def test_page_states_the_outcome_of_an_offer_once(said: str, reason: str, told: str) -> None:
    asked = AskedView(technician="ada", said=said, reason=reason, asked_at=0, at=0)
    assert answer(asked) == told


def test_place_without_an_address_is_shown_to_a_metre() -> None:
    assert place(Position(lat=40.714347328614714, lon=-73.98381501486844)) == "40.71435, -73.98382"
