"""Messages as scripts pack them: text is bytes, and comes back as it was."""

from __future__ import annotations

import struct
from typing import Any


def pack(value: object) -> bytes:
    """Packs numbers, truth values, None, text, bytes, lists and maps; bytes go as text does."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return struct.pack(">Bq", 0xD3, value)
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return struct.pack(">BI", 0xDB, len(value)) + value
    if isinstance(value, list | tuple):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(pack, value))
    if isinstance(value, dict):
        parts = [pack(key) + pack(one) for key, one in value.items()]
        return struct.pack(">BI", 0xDF, len(parts)) + b"".join(parts)
    message = f"cannot pack {value!r}"
    raise TypeError(message)


def unpack(data: bytes) -> Any:  # noqa: ANN401  (whatever was packed)
    """Unpacks a message; text that is no UTF-8 is kept by surrogates."""
    value, rest = _read(data, 0)
    assert rest == len(data)
    return value


_FIXED: dict[int, str] = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_SIZED: dict[int, tuple[str, str]] = {
    0xD9: (">B", "text"),
    0xDA: (">H", "text"),
    0xDB: (">I", "text"),
    0xDC: (">H", "list"),
    0xDD: (">I", "list"),
    0xDE: (">H", "map"),
    0xDF: (">I", "map"),
}
_WORDS = {0xC0: None, 0xC2: False, 0xC3: True}


def _read(data: bytes, at: int) -> tuple[Any, int]:
    first = data[at]
    at += 1
    if first in _WORDS:
        return _WORDS[first], at
    if first in _FIXED:
        return struct.unpack_from(_FIXED[first], data, at)[0], at + struct.calcsize(_FIXED[first])
    if first in _SIZED:
        size, kind = _SIZED[first]
        return _read_sized(data, at + struct.calcsize(size), kind, _number(size, data, at))
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 256, at
    kind = {0x8: "map", 0x9: "list"}.get(first >> 4, "text")
    return _read_sized(data, at, kind, first & (0x1F if kind == "text" else 0x0F))


def _number(size: str, data: bytes, at: int) -> int:
    return struct.unpack_from(size, data, at)[0]


def _read_sized(data: bytes, at: int, kind: str, size: int) -> tuple[Any, int]:
    if kind == "text":
        return data[at : at + size].decode("utf-8", "surrogateescape"), at + size
    if kind == "list":
        values: list[Any] = []
        for _ in range(size):
            value, at = _read(data, at)
            values.append(value)
        return values, at
    found: dict[Any, Any] = {}
    for _ in range(size):
        key, at = _read(data, at)
        found[key], at = _read(data, at)
    return found, at
