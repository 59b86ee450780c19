"""Replies of no fixed type, with texts that may be any bytes."""

from __future__ import annotations

import struct

import msgspec

_decode = msgspec.msgpack.Decoder().decode

_NUMBERS = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_PLAIN = {0xC0: None, 0xC2: False, 0xC3: True}
_TEXT = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAY = {0xDC: 2, 0xDD: 4}
_MAP = {0xDE: 2, 0xDF: 4}


def decode_untyped(data: msgspec.Raw) -> object:
    """What a script packed.

    Args:
        data: MessagePack as Redis writes it.

    Returns:
        Maps, lists, texts, numbers. A text that is no UTF-8, such as arguments that are no JSON,
        keeps its bytes by `surrogateescape`.
    """
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return _Reader(bytes(data)).value()
    except UnicodeDecodeError:
        return _Reader(bytes(data)).value()


class _Reader:
    """Decodes slowly, for the rare reply with a text that is not UTF-8."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        self._at += size
        return data

    def _size(self, size: int) -> int:
        return int.from_bytes(self._take(size))

    def _scalar(self, first: int) -> object:
        if first in _PLAIN:
            return _PLAIN[first]
        if first in _NUMBERS:
            number = _NUMBERS[first]
            return number.unpack(self._take(number.size))[0]
        return first if first < 0x80 else first - 0x100

    def value(self) -> object:
        """The next value."""
        first = self._size(1)
        if first < 0x80 or first >= 0xE0 or first in _PLAIN or first in _NUMBERS:
            return self._scalar(first)
        if first in _TEXT or 0xA0 <= first < 0xC0:
            size = self._size(_TEXT[first]) if first in _TEXT else first & 0x1F
            return self._take(size).decode("utf-8", "surrogateescape")
        if first in _ARRAY or 0x90 <= first < 0xA0:
            size = self._size(_ARRAY[first]) if first in _ARRAY else first & 0x0F
            return [self.value() for _ in range(size)]
        size = self._size(_MAP[first]) if first in _MAP else first & 0x0F
        return {self.value(): self.value() for _ in range(size)}
