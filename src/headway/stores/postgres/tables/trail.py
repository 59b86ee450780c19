"""The tables of the trail and of requests that were answered."""

from __future__ import annotations

from collections.abc import Sequence

from headway.stores.ledger.rows import TrailRow
from headway.stores.postgres.arrays import Numbers, Texts
from headway.stores.postgres.registry import digest
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Tell, of

_ADD = Tell(
    "INSERT INTO @trail (at, author, reason, verb, target, detail) SELECT * FROM unnest("
    "$1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])",
    of("trail"),
)
_PAGE = Ask(
    "SELECT seq, at, author, reason, verb, target, detail FROM @trail"
    " WHERE seq < $1 ORDER BY seq DESC LIMIT $2",
    of("trail"),
)
_PAGE_OF = Ask(
    "SELECT seq, at, author, reason, verb, target, detail FROM @trail"
    " WHERE target = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3",
    of("trail"),
)
_SINCE = Ask(
    "SELECT seq, at, author, reason, verb, target, detail FROM @trail"
    " WHERE seq > $1 ORDER BY seq LIMIT $2",
    of("trail"),
    ahead=True,
)
_REMOVE = Tell(
    "DELETE FROM @trail WHERE ctid = ANY (ARRAY("
    "SELECT ctid FROM @trail WHERE seq BETWEEN $1 AND $2 ORDER BY seq))",
    of("trail"),
)
_ANSWER = Ask("SELECT answer FROM @answer WHERE hash = $1", of("answer"))
_KEEP = Tell("INSERT INTO @answer VALUES ($1, @now, $2) ON CONFLICT DO NOTHING", of("answer"))
_FORGET = Tell(
    "DELETE FROM @answer WHERE hash = ANY (ARRAY("
    "SELECT hash FROM @answer WHERE at < $1 ORDER BY at LIMIT 100))",
    of("answer"),
)
_KEPT_MS = 7_200_000
_END = 2**62


class PostgresTrail:
    """Who did what, when and why."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[TrailRow]) -> None:
        if not rows:
            return
        _, moments, authors, reasons, verbs, targets, details = zip(*rows, strict=True)
        texts = (Texts(map(storable, each)) for each in (authors, reasons, verbs, targets, details))
        self._session.tell(_ADD, Numbers(moments), *texts)

    def remove(self, rows: Sequence[TrailRow]) -> None:
        self._session.tell(_REMOVE, rows[0].seq, rows[-1].seq)

    def page(self, target: str | None, before: int | None, limit: int) -> list[TrailRow]:
        end = _END if before is None else before
        if target is None:
            found = self._session.ask(_PAGE, end, limit)
        else:
            found = self._session.ask(_PAGE_OF, target, end, limit)
        return [TrailRow._make(row) for row in found]

    def since(self, after: int, limit: int) -> list[TrailRow]:
        return [TrailRow._make(row) for row in self._session.ask(_SINCE, after, limit)]

    def answer(self, request: str) -> bytes | None:
        rows = self._session.ask(_ANSWER, digest(request.encode()))
        return rows[0][0] if rows else None

    def keep_answer(self, request: str, answer: bytes) -> None:
        self._session.tell(_FORGET, self._session.now - _KEPT_MS)
        self._session.tell(_KEEP, digest(request.encode()), answer)


def storable(text: str) -> str:
    """Free text as the server can hold it: it knows no NUL and no lone surrogate."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
