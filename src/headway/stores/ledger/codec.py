"""JSON encoding of signals and replies that are stored."""

from __future__ import annotations

import msgspec

from headway.contract.operate import ActReply
from headway.contract.signals import Signal

_encoder = msgspec.json.Encoder()
_signals = msgspec.json.Decoder(Signal)
_replies = msgspec.json.Decoder(list[ActReply])


def encode_signal(signal: Signal) -> bytes:
    """Encode a signal for storage."""
    return _encoder.encode(signal)


def decode_signal(data: bytes) -> Signal:
    """Decode a stored signal."""
    return _signals.decode(data)


def encode_replies(replies: list[ActReply]) -> bytes:
    """Encode replies that a repeated request gets again."""
    return _encoder.encode(replies)


def decode_replies(data: bytes) -> list[ActReply]:
    """Decode stored replies."""
    return _replies.decode(data)
