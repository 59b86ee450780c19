"""The shapes in which Twilio tells of calls, messages and numbers.

Source: Twilio, "Calls resource", "Messages resource", "IncomingPhoneNumber resource".
"""

from __future__ import annotations

from headway.carrier.forms import rfc2822
from headway.carrier.ledger import Call, Text
from headway.systems.telephony.voice import CallStatus

Shape = dict[str, object]

_API = "/2010-04-01/Accounts"


def call_shape(account: str, call: Call) -> Shape:
    """A call."""
    plan = call.plan
    uri = f"{_API}/{account}/Calls/{call.sid}"
    began = None if call.status is CallStatus.QUEUED else rfc2822(call.placed_at)
    return {
        "account_sid": account,
        "annotation": None,
        "answered_by": None,
        "api_version": "2010-04-01",
        "caller_name": None,
        "date_created": rfc2822(call.placed_at),
        "date_updated": rfc2822(call.ended_at or call.answered_at or call.placed_at),
        "direction": "outbound-api",
        "duration": None if call.duration_s is None else str(call.duration_s),
        "end_time": None if call.ended_at is None else rfc2822(call.ended_at),
        "forwarded_from": None,
        "from": plan.from_,
        "from_formatted": plan.from_,
        "group_sid": None,
        "parent_call_sid": None,
        "phone_number_sid": None,
        "price": None,
        "price_unit": "USD",
        "queue_time": "0",
        "sid": call.sid,
        "start_time": began,
        "status": call.status.value,
        "subresource_uris": {"events": f"{uri}/Events.json"},
        "to": plan.to,
        "to_formatted": plan.to,
        "trunk_sid": None,
        "uri": f"{uri}.json",
    }


def text_shape(account: str, text: Text) -> Shape:
    """A message."""
    plan = text.plan
    failed = text.status.value == "undelivered"
    return {
        "account_sid": account,
        "api_version": "2010-04-01",
        "body": plan.text,
        "date_created": rfc2822(text.sent_at),
        "date_sent": None if text.status.value == "queued" else rfc2822(text.sent_at),
        "date_updated": rfc2822(text.sent_at),
        "direction": "inbound" if text.inbound else "outbound-api",
        "error_code": 30003 if failed else None,
        "error_message": "Unreachable destination handset" if failed else None,
        "from": plan.from_,
        "messaging_service_sid": None,
        "num_media": "0",
        "num_segments": "1",
        "price": None,
        "price_unit": "USD",
        "sid": text.sid,
        "status": "received" if text.inbound else text.status.value,
        "subresource_uris": {"media": f"{_API}/{account}/Messages/{text.sid}/Media.json"},
        "to": plan.to,
        "uri": f"{_API}/{account}/Messages/{text.sid}.json",
    }


def number_shape(account: str, sid: str, number: str, sms_url: str) -> Shape:
    """One of the account's own numbers."""
    return {
        "account_sid": account,
        "api_version": "2010-04-01",
        "capabilities": {"fax": False, "mms": False, "sms": True, "voice": True},
        "friendly_name": number,
        "phone_number": number,
        "sid": sid,
        "sms_method": "POST",
        "sms_url": sms_url,
        "status": "in-use",
        "uri": f"{_API}/{account}/IncomingPhoneNumbers/{sid}.json",
    }
