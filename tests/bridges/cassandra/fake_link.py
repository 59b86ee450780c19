"""The part of Cassandra that the bridge uses: cells with timestamps, two kinds of tombstones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from headway.bridges.cassandra.link import CassandraSettings, Cql, RowPage, Rows, Values

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else (EPOCH + timedelta(milliseconds=ms)).replace(tzinfo=None)


Hook = Callable[[Cql, Values], Awaitable[None]]


class FakeLink:
    """The tables of one node.

    Attributes:
        rows: value and timestamp of each row, by partition, then due time and id.
        history: columns, TTL and timestamp of each row, by recipient and month, then intake and id.
        before, after: called around each statement with its values; they may raise.
        page: number of rows per page.
        asked: statements that were run, in order.
    """

    def __init__(self, settings: CassandraSettings, *, page: int = 3) -> None:
        self.settings = settings
        self.page = page
        self.asked: list[Cql] = []
        self.rows: dict[tuple[str, int], dict[tuple[int, Any], tuple[bytes, int]]] = {}
        self.dropped: dict[object, int] = {}
        self.index: dict[str, tuple[Any, int, bytes]] = {}
        self.refused: dict[Any, tuple[Any, ...]] = {}
        self.progress: list[Any] | None = None
        self.history: dict[tuple[str, str], dict[tuple[int, str], tuple[Any, ...]]] = {}
        self.before: Hook = _nothing
        self.after: Hook = _nothing

    @property
    def left(self) -> int:
        """Number of job rows in the table."""
        return sum(map(len, self.rows.values()))

    async def run(self, statement: Cql, values: Values = (), after: bytes | None = None) -> RowPage:
        await self.before(statement, values)
        self.asked.append(statement)
        found = list(getattr(self, f"_{statement.name.lower()}")(*values))
        start = int(after or 0)
        paged = statement in {Cql.READ_BUCKET, Cql.LIST_REFUSED}
        size = self.page if paged else len(found) or 1
        more = str(start + size).encode() if start + size < len(found) else None
        await self.after(statement, values)
        return RowPage(found[start : start + size], more)

    async def run_many(self, statement: Cql, each: Any) -> list[Rows]:
        return [(await self.run(statement, values)).rows for values in each]

    def _put_row(self, bucket: str, shard: int, due: int, id_: Any, job: bytes, stamp: int) -> Any:
        place, key = (bucket, shard), (due, id_)
        dropped = max(self.dropped.get(place, 0), self.dropped.get((*place, *key), 0))
        there = self.rows.setdefault(place, {})
        if stamp > dropped and stamp >= there.get(key, (b"", 0))[1]:
            there[key] = job, stamp
        return ()

    def _get_row(self, bucket: str, shard: int, due: int, id_: Any) -> Any:
        found = self.rows.get((bucket, shard), {}).get((due, id_))
        return () if found is None else (found,)

    def _read_bucket(self, bucket: str, shard: int) -> Any:
        for (due, id_), value in sorted(self.rows.get((bucket, shard), {}).items()):
            yield (moment(due), id_, *value)

    def _drop_row(self, stamp: int, bucket: str, shard: int, due: int, id_: Any) -> Any:
        place, key = (bucket, shard), (due, id_)
        self.dropped[*place, *key] = max(stamp, self.dropped.get((*place, *key), 0))
        if self.rows.get(place, {}).get(key, (b"", stamp + 1))[1] <= stamp:
            del self.rows[place][key]
        return ()

    def _drop_bucket(self, stamp: int, bucket: str, shard: int) -> Any:
        place = bucket, shard
        self.dropped[place] = max(stamp, self.dropped.get(place, 0))
        there = self.rows.get(place, {})
        self.rows[place] = {key: value for key, value in there.items() if value[1] > stamp}
        return ()

    def _put_index(self, name: str, id_: Any, due: int, body: bytes, ttl: int, stamp: int) -> Any:
        self.index[name] = id_, due, body
        return ()

    def _claim_key(self, name: str, id_: Any, due: int, body: bytes, ttl: int) -> Any:
        if name in self.index:
            there = self.index[name]
            return ((False, name, there[2], there[0], moment(there[1])),)
        self.index[name] = id_, due, body
        return ((True,),)

    def _free_key(self, name: str, id_: Any) -> Any:
        if self.index.get(name, (None,))[0] == id_:
            del self.index[name]
        return ((True,),)

    def _get_index(self, names: Sequence[str]) -> Any:
        found = [(name, self.index[name]) for name in names if name in self.index]
        return [(name, moment(one[1]), one[2]) for name, one in found]

    def _put_refused(self, id_: Any, *rest: Any) -> Any:
        self.refused[id_] = rest
        return ()

    def _list_refused(self) -> Any:
        return [(id_, moment(one[0]), one[1], one[2], one[4]) for id_, one in self.refused.items()]

    def _drop_refused(self, stamp: int, id_: Any) -> Any:
        self.refused.pop(id_, None)
        return ()

    def _make_progress(self, shards: int, done: int, read: int) -> Any:
        if self.progress is None:
            self.progress = [shards, done, read, 0, 0, 0, 0, None, None]
        return ((True,),)

    def _get_progress(self) -> Any:
        return () if self.progress is None else ((*self.progress[:-1], moment(self.progress[-1])),)

    def _put_progress(self, stamp: int, *values: Any) -> Any:
        assert self.progress is not None
        self.progress[1:] = values
        return ()

    def _put_history(self, recipient: str, month: str, at: int, id_: str, *rest: Any) -> Any:
        there = self.history.setdefault((recipient, month), {})
        if rest[-1] >= there.get((at, id_), (0,))[-1]:
            there[at, id_] = rest
        return ()

    def _read_history(self, recipient: str, month: str, at: int, id_: str, limit: int) -> Any:
        there = self.history.get((recipient, month), {})
        older = sorted((one for one in there if one < (at, id_)), reverse=True)
        return [(moment(one[0]), one[1], *there[one][:5]) for one in older[:limit]]


async def _nothing(statement: Cql, values: Values) -> None:
    del statement, values
