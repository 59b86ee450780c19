"""What Twilio's refusals concern, by its error codes.

Source: Twilio, "Error and Warning Dictionary".
"""

from __future__ import annotations

import msgspec

from headway.systems.telephony.wire import Refusal

UNKNOWN = "20404"
"""There is no such call or message."""

SENDER = frozenset(
    {
        21210,  # the number to call from is not verified
        21212,  # or no number
        21213,  # or missing
        21401,  # cannot send messages
        21601,  # cannot send messages
        21603,  # the sender of a message is missing
        21606,  # cannot send messages to there
        21607,  # only the sandbox's number can send
        21611,  # too many of its messages wait
        21612,  # cannot send messages to there
        21616,  # matches several numbers
        21621,  # cannot send pictures
        21659,  # none of Twilio's
        21660,  # another account's
        21661,  # cannot send messages
    }
)
PROVIDER = frozenset(
    {
        10001,  # the account is not active
        10002,  # a trial account cannot do it
        10004,  # too many calls at once
        14107,  # too many messages at once
        20001,  # a parameter is unknown
        20003,  # who asks is not known
        20005,  # the account is not active
        20006,  # access denied
        20008,  # the account's test token
        20010,  # the account is suspended
        20404,  # no such account, where something is to be made
        20429,  # too many requests
        21205,  # a URL is unusable
        21218,  # no such application
        21609,  # the status callback's URL is unusable
        30001,  # the queue is full
        30002,  # the account is suspended
    }
)


class _Error(msgspec.Struct):
    code: int
    message: str = ""


def read_refusal(status: int, body: bytes) -> Refusal:
    """What a reply of 4xx says.

    Args:
        status: of the reply.
        body: of the reply.

    Returns:
        Whom it concerns: by its code; else by its status; a reply that has no code is not
        Twilio's, and concerns whatever stands at that address.
    """
    try:
        said = msgspec.json.decode(body, type=_Error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refusal(concerns="provider", text="there is no error of Twilio's in the reply")
    return Refusal(concerns=_concerns(said.code, status), code=str(said.code), text=said.message)


def _concerns(code: int, status: int) -> str:
    if code in SENDER:
        return "sender"
    if code in PROVIDER or status in {401, 402, 403, 407}:
        return "provider"
    return "callee"
