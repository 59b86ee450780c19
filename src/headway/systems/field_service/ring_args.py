"""What the jobs of calls and messages carry, and what they are known as, as others read it."""

from __future__ import annotations

import msgspec

from headway.contract.views import JobView


class _Args(msgspec.Struct):
    offer: str = ""


_decode = msgspec.json.Decoder(_Args).decode


def offer_of(ring: JobView) -> str:
    """The reference of the offer that a call or message makes; empty if it makes none."""
    return _decode(ring.args).offer


def call_of(keys: tuple[str, ...]) -> tuple[str, str] | None:
    """The provider and its id of the call that a run is known as; None if that is not known."""
    for key in keys:
        provider, colon, call_id = key.partition(":")
        if colon:
            return provider, call_id
    return None
