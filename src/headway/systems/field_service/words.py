"""What people are told, spoken or written."""

from __future__ import annotations

from headway.systems.field_service.request import Request, Urgency

BYE = "Goodbye."
ASK_AGAIN = "That was no answer."
KEYS = "Press 1 to accept, 2 to decline."
KEYS_WRITTEN = "Reply 1 to accept, 2 to decline."
NO_OFFER = "You have no open offer: it is over, or another has taken it."
DECLINED = "Thank you. The next one is asked. Goodbye."
TAKEN = "You are too late: another has taken it."
OVER = "You are too late: the offer is over."
WITHDRAWN = "The job was withdrawn."


def place_words(request: Request) -> str:
    """The place, for people."""
    return request.address or f"{request.position.lat:.5f}, {request.position.lon:.5f}"


def _what(request: Request) -> str:
    urgent = {Urgency.EMERGENCY: "Emergency", Urgency.HIGH: "Urgent job"}
    head = urgent.get(request.urgency, "Job")
    detail = f": {request.description}" if request.description else ""
    return f"{head} at {place_words(request)}{detail}"


def offer_spoken(request: Request, distance_km: float) -> str:
    """The offer, by telephone."""
    return f"{_what(request)}. It is {distance_km:.0f} kilometres away. {KEYS}"


def offer_written(request: Request, distance_km: float) -> str:
    """The offer, by message."""
    return f"{_what(request)} ({distance_km:.0f} km). {KEYS_WRITTEN}"


def accepted_words(request: Request) -> str:
    """To whoever accepted in time."""
    return (
        f"You have it: {place_words(request)}. {request.customer.name}, {request.customer.phone}."
    )


def assigned_words(request: Request) -> str:
    """To whom a dispatcher gave it."""
    return f"You are assigned: {_what(request)}. {request.customer.name}, {request.customer.phone}."


def taken_words(request: Request) -> str:
    """To those who were asked before, and had not answered."""
    return f"The job at {place_words(request)} is taken."


def withdrawn_words(request: Request) -> str:
    """To whoever had it."""
    return f"The job at {place_words(request)} is no longer yours: it was withdrawn."


def alert_words(request: Request, id: str, reason: str) -> str:  # noqa: A002  (as everywhere)
    """To a dispatcher, when nobody takes it."""
    why = "nobody takes it" if reason == "exhausted" else reason
    return (
        f"{_what(request)} for {request.customer.name}, {request.customer.phone}: {why}. "
        f"Assign it or dispatch it again: request {id}."
    )
