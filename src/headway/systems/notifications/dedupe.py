"""Dedupe: exact, by recipient, channel and key; the window runs from the first accepted one.

The engine's own key of a job lives from its enqueue until some time after its end, and refuses
another body. Here a window begins with the first accepted notification, ends at a fixed moment,
and a duplicate with another text is a duplicate all the same. So the keys are rows of the
directory: one for each key of the last window and no more, since each batch that adds rows removes
twice as many that are over. They are the only memory that dedupe takes; no process holds any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncSession

from headway.systems.notifications.names import Channel
from headway.systems.notifications.records import DIGEST_BYTES

STEP = 500
"""Keys of one statement."""

_HOLDERS = "SELECT digest, id FROM notify_keys WHERE digest IN ({})"
_REMOVE = text(
    "DELETE FROM notify_keys WHERE digest IN "
    "(SELECT digest FROM notify_keys WHERE until_at <= :now ORDER BY until_at LIMIT :most)"
)


class Wanted(NamedTuple):
    """A key that a new notification has, and that notification's id."""

    digest: bytes
    id: str


def digest_of(recipient: str, channel: Channel, key: str) -> bytes:
    """Return a hash that identifies a key, so that a row is small whatever its texts are."""
    whole = msgspec.json.encode([recipient, channel, key])
    return blake2b(whole, digest_size=DIGEST_BYTES).digest()


async def take_keys(
    session: AsyncSession, wanted: Sequence[Wanted], *, now: int, window_ms: int
) -> Mapping[bytes, str]:
    """Give each key to the first notification that wants it.

    Args:
        session: in a transaction; the keys are taken when it commits.
        wanted: in order; of several with one key the first takes it.
        now: ms UTC.
        window_ms: how long a key stays taken.

    Returns:
        Which notification has each key now, by digest: the wanted one, or an earlier one.
    """
    first: dict[bytes, str] = {}
    for one in wanted:
        first.setdefault(one.digest, one.id)
    # In one order, so that two batches wait for each other in no circle.
    ordered = sorted(first.items())
    holders: dict[bytes, str] = {}
    for start in range(0, len(ordered), STEP):
        step = ordered[start : start + STEP]
        taken = await _insert(session, step, now, now + window_ms)
        held = [digest for digest, _ in step if digest not in taken]
        holders |= {digest: first[digest] for digest in taken}
        holders |= await _held(session, held)
    if ordered:
        await session.execute(_REMOVE, {"now": now, "most": 2 * len(ordered)})
    return holders


async def _insert(
    session: AsyncSession, step: Sequence[tuple[bytes, str]], now: int, until_at: int
) -> set[bytes]:
    values: dict[str, object] = {"now": now, "until": until_at}
    for n, (digest, id_) in enumerate(step):
        values[f"d{n}"], values[f"i{n}"] = digest, id_
    rows = await session.execute(_insert_text(len(step)), values)
    return {bytes(digest) for (digest,) in rows}


async def _held(session: AsyncSession, digests: Sequence[bytes]) -> dict[bytes, str]:
    if not digests:
        return {}
    names = ", ".join(f":d{n}" for n in range(len(digests)))
    values = {f"d{n}": digest for n, digest in enumerate(digests)}
    rows = await session.execute(text(_HOLDERS.format(names)), values)
    return {bytes(digest): id_ for digest, id_ in rows}


@lru_cache(maxsize=64)
def _insert_text(count: int) -> TextClause:
    rows = ", ".join(f"(:d{n}, :i{n}, :until)" for n in range(count))
    return text(
        f"INSERT INTO notify_keys (digest, id, until_at) VALUES {rows} "  # noqa: S608  (numbered parameters)
        "ON CONFLICT (digest) DO UPDATE SET id = excluded.id, until_at = excluded.until_at "
        "WHERE notify_keys.until_at <= :now RETURNING digest"
    )
