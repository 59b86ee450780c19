"""How requests that must be kept are encoded: JSON, by msgspec."""

from __future__ import annotations

import msgspec

from headway.contract.operate import ActReply
from headway.contract.signals import Signal

_encoder = msgspec.json.Encoder()
_signals = msgspec.json.Decoder(Signal)
_replies = msgspec.json.Decoder(list[ActReply])


def encode_signal(signal: Signal) -> bytes:
    """A signal, as it is kept."""
    return _encoder.encode(signal)


def decode_signal(data: bytes) -> Signal:
    """A kept signal."""
    return _signals.decode(data)


def encode_replies(replies: list[ActReply]) -> bytes:
    """Replies, as they are kept for a repeated request."""
    return _encoder.encode(replies)


def decode_replies(data: bytes) -> list[ActReply]:
    """Kept replies."""
    return _replies.decode(data)
