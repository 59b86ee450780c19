"""Long or odd forms: the job is still offered, in a text short enough for a phone."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from headway.systems.field_service.messages import (
    accepted_text,
    alert_text,
    assigned_text,
    offer_spoken,
    offer_written,
    taken_text,
    withdrawn_text,
)
from headway.systems.field_service.request import Customer, Position, Request, Urgency
from headway.systems.telephony.twilio_webhooks import to_twiml
from headway.systems.telephony.voice import Ask, Say
from tests.systems.field_service.field_rig import HERE, a_field

NEWER = "\U0003fff0"
"""A code point that is not assigned yet."""
ODD = "smells of gas\x0b\x01 & \x85<fumes>\n\n\ttoday \U0001f525"
LONG = Request(
    customer=Customer(name="Bo " * 66, phone="+14155550100"),
    position=Position(**HERE),
    urgency=Urgency.EMERGENCY,
    address="Alexanderplatz 1, the third door. " * 15,
    description="The boiler drips & hums. " * 160,
)
ID = "01a1fd5c-3534-7364-bb2d-381e7c2d9c63"


def test_texts_of_the_longest_form_fit_into_a_message_and_a_script():
    url = "https://dispatch.example.org/field-service/hooks/twilio/answer?ref=" + ID + ":1000"
    # Twilio: a message has at most 1,600 characters, a script 4,000. Vonage speaks 1,500.
    asked = offer_spoken(LONG, 12.0)
    assert len(asked) <= 1_500
    assert len(to_twiml(Ask(text=asked, answer_url=url))) <= 4_000
    alert = alert_text(LONG, ID, "exhausted")
    assert len(f"{alert} I repeat. {alert}") <= 1_500
    assert asked.endswith("Press 1 to accept, 2 to decline.")
    assert ID in alert
    for words in (
        offer_written(LONG, 12.0),
        assigned_text(LONG),
        accepted_text(LONG),
        taken_text(LONG),
        withdrawn_text(LONG),
        alert,
    ):
        assert len(words) <= 1_600
        assert "Alexanderplatz 1" in words
    assert "Job at Alexanderplatz 1: no heat." in offer_spoken(
        Request(
            customer=LONG.customer,
            position=LONG.position,
            address="Alexanderplatz 1",
            description="no heat",
        ),
        1.0,
    )


@pytest.mark.parametrize("channel", ["voice", "text"])
async def test_long_and_odd_form_is_offered_and_accepted(tmp_path: Path, channel: str):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept", channel=channel)
        sent = await field.ask(description=ODD * 60, address=ODD)
        told = await field.becomes(sent["id"], "assigned")
        assert told["technician"] == "ada"
        assert told["description"] == ODD * 60


def test_characters_no_document_can_contain_are_omitted():
    request = Request(
        customer=Customer(name="Bo\x00 Li", phone="+14155550100"),
        position=Position(**HERE),
        address=ODD,
        description=ODD,
    )
    for words in (
        offer_spoken(request, 1.0),
        alert_text(request, ID, "odd\x02"),
        accepted_text(request),
    ):
        assert all(one.isprintable() for one in words)
        assert "gas & <fumes> today \U0001f525" in words
        assert "<Say>" in to_twiml(Say(text=words))


def test_characters_newer_than_pythons_tables_are_kept():
    assert unicodedata.category(NEWER) == "Cn"
    request = Request(
        customer=Customer(name="Bo Li", phone="+14155550100"),
        position=Position(**HERE),
        address="",
        description=f"smells {NEWER}",
    )
    assert f"smells {NEWER}" in offer_written(request, 1.0)
