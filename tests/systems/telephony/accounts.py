"""Providers for the tests: their settings, and replies in their format."""

from __future__ import annotations

from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from headway.systems.telephony.twilio import Account
from headway.systems.telephony.twilio import make as make_twilio
from headway.systems.telephony.voice import CallOrder, CallScript, Say
from headway.systems.telephony.vonage import VonageApplication
from headway.systems.telephony.vonage import make as make_vonage

ACCOUNT = "AC00112233445566778899aabbccddeeff"
TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105  (made up)
NEXT_TOKEN = "fedcba9876543210fedcba9876543210"  # noqa: S105  (made up)
APPLICATION = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
SECRET = "a signature secret of more than 32 bytes"  # noqa: S105  (made up)
CALL = "CA" + "1" * 32
OTHER_CALL = "CA" + "2" * 32
MESSAGE = "SM" + "3" * 32
UUID = "63f61863-4a51-4f6b-86e1-46edebcf9356"
OTHER_UUID = "70f61863-4a51-4f6b-86e1-46edebcf9356"
TO, FROM = "+14155550100", "+14155550199"
SINCE = 1_800_000_000_000
"""2027-01-15 08:00:00 UTC."""


@cache
def private_key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=2048)


@cache
def pem() -> str:
    raw = private_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return raw.decode()


def twilio(url: str, **more: Any) -> Account:
    return make_twilio(
        {"account_sid": ACCOUNT, "auth_token": TOKEN, "base_url": url, "timeout": "8s", **more}
    )


def vonage(url: str, **more: Any) -> VonageApplication:
    return make_vonage(
        {
            "application_id": APPLICATION,
            "private_key": pem(),
            "base_url": url,
            "timeout": "8s",
            **more,
        }
    )


def order(script: CallScript | None = None, **more: Any) -> CallOrder:
    return CallOrder(
        **{
            "ref": "0190-job:3",
            "to": TO,
            "from_": FROM,
            "script": script or Say(text="Good day"),
            "status_url": "https://headway.test/calls/hooks/x?ref=0190-job%3A3",
            **more,
        }
    )


def twilio_call(sid: str = CALL, status: str = "queued", **more: Any) -> dict[str, Any]:
    """Return a call in the format of Twilio's API."""
    return {"sid": sid, "account_sid": ACCOUNT, "to": TO, "from": FROM, "status": status, **more}


def twilio_error(status: int, code: int) -> dict[str, Any]:
    """Return an error in the format of Twilio's API."""
    more = f"https://www.twilio.com/docs/errors/{code}"
    return {"code": code, "message": f"of {code}", "more_info": more, "status": status}


def vonage_made(uuid: str = UUID) -> dict[str, Any]:
    """Return a created call in the format of Vonage's API."""
    return {
        "uuid": uuid,
        "status": "started",
        "direction": "outbound",
        "conversation_uuid": "CON-f972836a-550f-45fa-956c-12a2ab5b7d22",
    }


def vonage_call(uuid: str = UUID, status: str = "completed", **more: Any) -> dict[str, Any]:
    """Return a call in the format of Vonage's API at a later time."""
    return {
        **vonage_made(uuid),
        "to": {"type": "phone", "number": TO[1:]},
        "from": {"type": "phone", "number": FROM[1:]},
        "status": status,
        "_links": {"self": {"href": f"/v1/calls/{uuid}"}},
        **more,
    }


def vonage_list(*calls: dict[str, Any], more: bool = False) -> dict[str, Any]:
    """Return a page of calls."""
    links = {"self": {"href": "/v1/calls"}, **({"next": {"href": "/next"}} if more else {})}
    return {
        "count": len(calls),
        "page_size": 100,
        "record_index": 0,
        "_embedded": {"calls": list(calls)},
        "_links": links,
    }
