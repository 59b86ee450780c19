"""Request bodies that cost a server as much as possible, within its limits or beyond them."""

from __future__ import annotations

import json
from collections.abc import Callable

MIB = 1024 * 1024
MOST = 16 * MIB
"""The server's maximum size of a body, in bytes."""
_JOB = {"kind": "noop", "lane": "flood", "args": {"phone": "+14155550100", "text": "x" * 150}}


def _filled(before: bytes, part: bytes, after: bytes) -> bytes:
    """Return a body of the maximum size, with a part repeated as often as it fits."""
    room = MOST - len(before) - len(after) - len(part)
    return before + part * (room // len(part)) + part.rstrip(b",") + after


def _keys(count: int) -> bytes:
    return b"{" + b",".join(b'"k%d":1' % n for n in range(count)) + b"}"


def _args(value: bytes) -> bytes:
    return b'{"kind":"noop","lane":"flood","args":{"a":' + value + b"}}"


def _each(count: int, value: bytes) -> bytes:
    return b"[" + b",".join([_args(value)] * count) + b"]"


BODIES: dict[str, Callable[[], bytes]] = {
    # Refused: more than the limits allow.
    "1,000,000 keys": lambda: _args(_keys(1_000_000)),
    "[[],[],... of 16 MiB": lambda: _filled(b"[", b"[],", b"]"),
    "[[],[],... in args, 16 MiB": lambda: _filled(b'{"kind":"noop","args":{"a":[', b"[],", b"]}}"),
    "brackets 8,000,000 deep": lambda: b"[" * (MOST // 2) + b"]" * (MOST // 2),
    "empty strings of 16 MiB": lambda: _filled(b"[", b'"",', b"]"),
    "escapes of 16 MiB": lambda: _filled(b'{"kind":"noop","args":{"a":"', b'\\\\\\"', b'"}}'),
    "a number of 16 MiB": lambda: _filled(b'{"kind":"noop","args":{"a":', b"1", b"}}"),
    "digits in 16 MiB of numbers": lambda: _filled(b"[", b"1" * 300 + b",", b"]"),
    "one key of 16 MiB": lambda: _filled(b'{"kind":"noop","args":{"', b"k", b'":1}}'),
    "999,999 items": lambda: b"[" + b"0," * 999_998 + b"0]",
    "one key twice among 49,000": lambda: _args(
        b"{" + b'"k":0,' + _keys(49_000)[1:-1] + b',"k":1}'
    ),
    # Accepted: just within the limits.
    "49,000 keys": lambda: _args(_keys(49_000)),
    "99,000 numbers": lambda: _args(b"[" + b"1," * 98_900 + b"1]"),
    "49,000 lists": lambda: _args(b"[" + b"[]," * 49_000 + b"[]]"),
    "10,000 jobs": lambda: json.dumps([_JOB] * 10_000).encode(),
    "10,000 jobs of 96 values": lambda: _each(10_000, b"[" + b"1," * 85 + b"1]"),
    "10,000 jobs of 40 keys": lambda: _each(10_000, _keys(40)),
    "10 jobs of 98,000 values": lambda: _each(10, b"[" + b"1," * 98_000 + b"1]"),
    "16 jobs of 1 MB of text": lambda: _each(16, b'"' + b"x" * 999_900 + b'"'),
    "8 jobs of 1 MB of escapes": lambda: _each(8, b'"' + b"\\u00e9" * 330_000 + b'"'),
}
"""Functions that create the bodies, by name."""
SLOW = "slow: 64 KiB a second"
