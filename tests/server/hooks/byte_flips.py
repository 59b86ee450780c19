"""Every byte of a webhook flipped, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.server.hooks.senders import Sent


def flipped(data: bytes) -> Iterator[bytes]:
    """Yield the same bytes with one bit of each byte flipped in turn."""
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        yield bytes(changed)


def bodies(sent: Sent) -> Iterator[Sent]:
    """Yield the webhook with each byte of its body flipped."""
    return (replace(sent, body=body) for body in flipped(sent.body))


def headers(sent: Sent, name: str) -> Iterator[Sent]:
    """Yield the webhook with each byte of a header flipped."""
    whole = sent.header(name).encode()
    return (sent.with_header(name, one.decode("latin-1")) for one in flipped(whole))


def urls(sent: Sent) -> Iterator[Sent]:
    """Yield the webhook with each byte of its path and query flipped."""
    start = sent.url.index("/", len("https://"))
    head, tail = sent.url[:start], sent.url[start:].encode()
    return (replace(sent, url=head + one.decode("latin-1")) for one in flipped(tail))
