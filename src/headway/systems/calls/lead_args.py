"""What a lead's job carries."""

from __future__ import annotations

from typing import Any

import msgspec

from headway.systems.calls.template import DEFAULT


class LeadArgs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of the kind `lead`.

    Attributes:
        phone: E.164.
        tz: the IANA zone of who is called.
        template: by name.
        payload: whatever the template's schema lets pass; None for nothing.
        reporting_webhook_url: where the result is told; None for nowhere.
        row: of your own table, where that is the truth; else empty.
    """

    phone: str
    tz: str
    template: str = DEFAULT
    payload: Any = None
    reporting_webhook_url: str | None = None
    row: str = ""


_decode = msgspec.json.Decoder(LeadArgs).decode


def read_args(args: bytes) -> LeadArgs:
    """Reads the arguments of a stored lead."""
    return _decode(args)
