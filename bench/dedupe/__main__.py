"""Measure what the deduplication of notifications drops, compared with Bloom filters.

    python -m bench.dedupe            a million distinct keys and a thousand doubles
    python -m bench.dedupe 10000 100  fewer

Both get the same keys in the same order. A false duplicate is a message that would be dropped.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from headway.systems.directory.database import Directory
from headway.systems.notifications import SCHEMAS
from headway.systems.notifications.intake import digest_of, take_keys
from headway.systems.notifications.notification import Channel

WINDOW_MS = 86_400_000
BATCH = 10_000
"""Keys per request."""


def keys(distinct: int, doubles: int, seed: int = 7) -> list[bytes]:
    """Return digests of distinct keys, with duplicates of some at random places after them."""
    draw = random.Random(seed)
    found = [digest_of(f"r{n % 1000}", Channel.EMAIL, f"order-{n}") for n in range(distinct)]
    for first in sorted(draw.sample(range(distinct), doubles), reverse=True):
        found.insert(draw.randrange(first + 1, len(found) + 1), found[first])
    return found


async def exact(asked: Sequence[bytes], folder: str) -> tuple[int, int]:
    """Return how many keys Headway finds duplicate, and the bytes of its table and index."""
    place = Path(folder) / "directory.db"
    directory = Directory(f"sqlite:///{place}")
    directory.needs(SCHEMAS[0])
    await directory.open()
    before = place.stat().st_size
    dropped = 0
    for start in range(0, len(asked), BATCH):
        wanted = [(one, f"{n:036}") for n, one in enumerate(asked[start : start + BATCH], start)]
        async with directory.change() as session:
            holders = await take_keys(session, wanted, now=start, window_ms=WINDOW_MS)
        dropped += sum(holders[digest] != id_ for digest, id_ in wanted)
    await directory.close()
    return dropped, place.stat().st_size - before


def bloom(asked: Iterable[bytes], size: int, expected: int) -> int:
    """Return how many keys a Bloom filter of `size` bytes with optimal hashes finds duplicate."""
    bits, space = 8 * size, bytearray(size)
    hashes = max(1, min(64, round(bits / expected * math.log(2))))
    dropped = 0
    for one in asked:
        new = False
        for place in _places(one, bits, hashes):
            if not space[place >> 3] >> (place & 7) & 1:
                new = True
                space[place >> 3] |= 1 << (place & 7)
        dropped += not new
    return dropped


def _places(key: bytes, bits: int, hashes: int) -> Iterator[int]:
    digest = blake2b(key, digest_size=16).digest()
    first, step = int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
    return ((first + n * step) % bits for n in range(hashes))


def main(distinct: int = 1_000_000, doubles: int = 1_000) -> None:
    """Measure, and print a line for each."""
    asked = keys(distinct, doubles)
    with tempfile.TemporaryDirectory() as folder:
        dropped, size = asyncio.run(exact(asked, folder))
    print(f"{distinct:,} distinct keys and {doubles:,} doubles")
    print(f"Headway: {size:,} bytes on disk; {dropped:,} duplicates, {dropped - doubles:,} wrong")
    percent = math.ceil(distinct * -math.log(0.01) / math.log(2) ** 2 / 8)
    for what, space in (
        ("a Bloom filter of the same bytes", size),
        ("one for 1 % at that many keys", percent),
        ("one of half of that", percent // 2),
    ):
        wrong = bloom(asked, space, distinct) - doubles
        print(f"{what}: {space:,} bytes in memory; {wrong:,} messages dropped")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
