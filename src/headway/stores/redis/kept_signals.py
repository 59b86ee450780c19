"""Kept signals: a chunk carries them as the ledger keeps them, a script as it heard them."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from headway.contract.signals import Signal
from headway.stores.ledger.codec import decode_signal, encode_signal
from headway.stores.redis.untyped import decode_untyped
from headway.stores.redis.values import encode, named


def to_script(payload: bytes) -> bytes:
    """A kept signal of a chunk, as a script keeps it; empty for one that was applied.

    Raises:
        msgspec.DecodeError: it is no signal.
    """
    return encode(named(decode_signal(payload))) if payload else b""


def from_script(payload: bytes) -> bytes:
    """A signal that a script kept, as the ledger keeps it; empty for one that was applied."""
    if not payload:
        return b""
    reply = cast("dict[str, Any]", decode_untyped(msgspec.Raw(payload)))
    if "body" in reply:
        reply["body"] = reply["body"].encode("utf-8", "surrogateescape")
    return encode_signal(msgspec.convert(reply, Signal))
