"""The texts of calls and messages to technicians and dispatchers."""

from __future__ import annotations

from headway.systems.field_service.request import Position, Request, Urgency
from headway.systems.telephony.texts import plain_text

BYE = "Goodbye."
ASK_AGAIN = "That is not a valid answer."
KEYS = "Press 1 to accept, 2 to decline."
KEYS_WRITTEN = "Reply 1 to accept, 2 to decline."
NO_OFFER = "You have no open offer: it is over, or another technician has taken it."
DECLINED = "Thank you. The next technician will be asked. Goodbye."
TAKEN = "You are too late: another technician has taken it."
OVER = "You are too late: the offer is over."
WITHDRAWN = "The job was withdrawn."
MOST_PLACE, MOST_DETAIL, MOST_NAME = 200, 250, 100
"""Maximum characters of each form field in a message, within the providers' limits.

Source: Twilio accepts 1,600 characters in a message and 4,000 in a script, which contains a
question twice; Vonage speaks 1,500.
"""


def place_text(request: Request) -> str:
    """Return the address, or the position if there is none."""
    return _short(request.address, MOST_PLACE) or place(request.position)


def place(position: Position) -> str:
    """Return a position as text, to about a metre."""
    return f"{position.lat:.5f}, {position.lon:.5f}"


def _short(text: str, most: int) -> str:
    """Return a text as one line of printable characters, truncated to `most`."""
    line = " ".join(plain_text(text).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _customer(request: Request) -> str:
    return f"{_short(request.customer.name, MOST_NAME)}, {request.customer.phone}"


def _what(request: Request) -> str:
    urgent = {Urgency.EMERGENCY: "Emergency", Urgency.HIGH: "Urgent job"}
    head = urgent.get(request.urgency, "Job")
    detail = _short(request.description, MOST_DETAIL)
    return f"{head} at {place_text(request)}" + (f": {detail}" if detail else "")


def offer_spoken(request: Request, distance_km: float) -> str:
    """Return the offer as spoken on the phone."""
    return f"{_what(request)}. It is {distance_km:.0f} kilometres away. {KEYS}"


def offer_written(request: Request, distance_km: float) -> str:
    """Return the offer as a text message."""
    return f"{_what(request)} ({distance_km:.0f} km). {KEYS_WRITTEN}"


def accepted_text(request: Request) -> str:
    """Return the message to the technician who accepted in time."""
    return f"You have it: {place_text(request)}. {_customer(request)}."


def assigned_text(request: Request) -> str:
    """Return the message to the technician to whom a dispatcher assigned the request."""
    return f"You are assigned: {_what(request)}. {_customer(request)}."


def taken_text(request: Request) -> str:
    """Return the message to technicians who had not answered before another accepted."""
    return f"The job at {place_text(request)} is taken."


def given_away_text(request: Request) -> str:
    """Return the message to the technician from whom a dispatcher took the request."""
    return f"The job at {place_text(request)} is no longer yours: another technician has it."


def withdrawn_text(request: Request) -> str:
    """Return the message to the technician of a withdrawn request."""
    return f"The job at {place_text(request)} is no longer yours: it was withdrawn."


def alert_text(request: Request, id: str, reason: str) -> str:
    """Return the message to a dispatcher when no technician accepts."""
    why = "no technician accepts it" if reason == "exhausted" else _short(reason, MOST_NAME)
    return (
        f"{_what(request)} for {_customer(request)}: {why}. "
        f"Assign it or dispatch it again: request {id}."
    )
