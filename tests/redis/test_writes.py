"""Writes of a script: batches that fit one call, numbers that stay exact, and rollback."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from headway.stores.ledger.gaterows import FOREVER, PermitRow
from headway.stores.ledger.rows import SignalRow, TrailRow, WorkerRow
from tests.redis.harness import SnippetFailed, Snippets
from tests.redis.job_pair import NAMES, Pair
from tests.servers.redis import GivenRedis, RedisServer

_namespaces = count(1)

FILL = """
Write.hset(Keys.totals, {'kept', '1', 'changed', '1', 'gone', '1', 'counted', '5'})
Write.zadd(Keys.purge, {1.5, 'kept', 9007199254740993, 'changed', 3, 'gone'})
"""
CHANGE = """
Write.begin()
Write.hset(Keys.totals, {'changed', '2', 'new', '', 'changed', '3'})
Write.put(Keys.totals, 'changed', '4')
Write.hincrby(Keys.totals, 'counted', 7)
Write.hincrby(Keys.totals, 'fresh', 7)
Write.hdel(Keys.totals, {'gone', 'never'})
Write.zadd(Keys.purge, {8, 'changed', 9, 'new', 10, 'new'})
Write.zrem(Keys.purge, {'gone', 'never', 'new'})
Write.put(Keys.lanes, 'a key that was not there', 'x')
Write.zadd(Keys.stale, {1, 'a key that was not there'})
"""


@pytest.fixture
def lua(redis_server: RedisServer | GivenRedis) -> Iterator[Snippets]:
    """A separate namespace."""
    snippets = Snippets(redis_server.url, f"writes-{next(_namespaces)}")
    yield snippets
    snippets.close()


def test_refusal_undoes_every_kind_of_write(lua: Snippets) -> None:
    lua.run(FILL)
    before = lua.contents()
    with pytest.raises(SnippetFailed, match="KeyConflict"):
        lua.run(f"{CHANGE} Run.refuse('KeyConflict', 'message')")
    assert lua.contents() == before
    lua.run(CHANGE)
    assert lua.contents() != before


def test_request_for_hours_undoes_what_was_written(lua: Snippets) -> None:
    lua.run(FILL)
    before = lua.contents()
    with pytest.raises(SnippetFailed, match="need"):
        lua.run(f"{CHANGE} Run.need({{}})")
    assert lua.contents() == before


def test_writes_before_the_journal_started_stay(lua: Snippets) -> None:
    with pytest.raises(SnippetFailed):
        lua.run(f"{FILL} Write.begin() Write.hdel(Keys.totals, {{'kept'}}) error('no')")
    assert lua.run("return redis.call('HGET', Keys.totals, 'kept')") == "1"


@pytest.mark.parametrize("number", [3_999, 4_000, 4_001, 9_001])
def test_any_number_of_values_is_written_read_and_undone(lua: Snippets, number: int) -> None:
    fill = (
        "local values, scores, names = {}, {}, {} for place = 1, request do"
        " names[place] = 'm' .. place"
        " values[2 * place - 1], values[2 * place] = names[place], place"
        " scores[2 * place - 1], scores[2 * place] = place, names[place] end "
    )
    write = f"{fill} Write.hset(Keys.totals, values) Write.zadd(Keys.purge, scores) "
    with pytest.raises(SnippetFailed):
        lua.run(f"Write.begin() {write} error('no')", number)
    assert lua.contents() == {}
    lua.run(write, number)
    before = lua.contents()
    assert [len(kept) for kept in before.values()] == [number, number]
    read = f"{fill} names[#names + 1] = 'none' local found = Write.read(Keys.totals, names) "
    got = lua.run(f"{read} return {{#found, found[request], found[request + 1]}}", number)
    assert got == [number + 1, str(number), False]
    drop = f"{fill} Write.hdel(Keys.totals, names) Write.zrem(Keys.purge, names) "
    with pytest.raises(SnippetFailed):
        lua.run(f"Write.begin() {drop} error('no')", number)
    assert lua.contents() == before
    lua.run(drop, number)
    assert lua.contents() == {}


def test_refusal_undoes_the_writes_of_all_tables(lua: Snippets) -> None:
    pair = Pair(lua, 4)
    rows = [pair.sent(pair.new()) for _ in range(150)]
    lua.call("Jobs.insert", rows[:100])
    ids = [row["id"] for row in rows[:100]]
    waiting = [row["id"] for row in rows[:100] if row["state"] == "waiting"]
    request = {
        "new": rows[100:],
        "ids": ids,
        "waiting": waiting,
        "scheduled": [{"id": one} for one in ids if one not in waiting],
        "permits": [PermitRow(name, ids[0], 1, "", 2, 3, "run") for name in NAMES],
        "worker": WorkerRow(id="w", lease_until=5),
        "signal": SignalRow(scope="k", event="e", key="k", at=1, kept_until=FOREVER),
        "line": TrailRow(0, 1, "me", "", "close", "a", ""),
    }
    setting = """
    Permits.add(request.permits) Workers.save(request.worker) Signals.save(request.signal)
    Signals.make_known('k', request.ids[1], 1) Trail.add({request.line})
    """
    lua.run(setting, request)
    before = lua.contents()
    moves = """
    Write.begin() Time.keep()
    Jobs.insert(request.new) Jobs.promote(request.scheduled)
    local half = {} for place = 1, 10 do half[place] = request.waiting[place] end
    Jobs.start_plain(half, 'w', 1) Jobs.park({request.waiting[11]}, 'g', 0)
    Jobs.feed({{id = request.waiting[11]}}, 'g', {1})
    local rows = Jobs.load(request.ids) local all = {}
    for _, row in pairs(rows) do
      row.state, row.purge_at, row.error = 'dead', 7, string.rep('e', 999)
      all[#all + 1] = row
    end
    Jobs.save(all) Jobs.add_runs({{job = request.ids[2], run = 1}})
    Permits.remove(request.permits) Workers.remove({'w'}) Signals.drop({request.signal})
    Trail.add({request.line}) Trail.keep_answer('r', 'a') Starts.add({g = 1})
    Counts.move('l', nil, 'dead', 3) Counts.happened('dead', 3) Lanes.ensure({'l'})
    Lanes.save_tenant_starts('l', {t = 1}) Declared.bump_revision()
    Jobs.remove(request.ids)
    """
    with pytest.raises(SnippetFailed, match="enough"):
        lua.run(f"{moves} error('enough')", request)
    assert lua.contents() == before
    lua.run(moves, request)
    assert lua.contents() != before


@pytest.mark.parametrize("name", [*NAMES, "", "\x00", "\x00\x00", "\x00\xff", "\xff" * 9])
def test_names_are_read_back_and_none_is_a_prefix_of_another(lua: Snippets, name: str) -> None:
    code = "return {Codec.read_name('ab' .. Codec.name(request) .. 'x', 3)}"
    got, behind = lua.run(code, name)
    assert got == name
    size = lua.run("return #Codec.name(request)", name)
    assert behind == 3 + size
    found = lua.run(
        "local one = Codec.name(request[1]) local found = 0 for _, other in ipairs(request) do"
        " if string.sub(Codec.name(other), 1, #one) == one then found = found + 1 end end"
        " return found",
        [name, *(other for other in NAMES if other != name)],
    )
    assert found == 1


def test_names_sort_by_their_bytes(lua: Snippets) -> None:
    names = sorted({*NAMES, "", "\x00", "\x00\x00", "\x00\xff", "ab", "A", "Z"})
    add = "for _, name in ipairs(request) do Write.zadd(Keys.purge, {0, Codec.name(name)}) end "
    walk = (
        "local found = redis.call('ZRANGE', Keys.purge, 0, -1) for place, one in ipairs(found) do"
        " found[place] = Codec.read_name(one, 1) end return found"
    )
    assert lua.run(add + walk, names[::-1]) == names
    assert lua.run("table.sort(request, Codec.less) return request", names[::-1]) == names


def test_prefix_bounds_contain_exactly_the_names_with_the_prefix(lua: Snippets) -> None:
    members = [b"a", b"a\x00", b"a\xff", b"a\xff\xff\xff", b"b", b"\xff", b"\xff\xff\x00", b"`\xff"]
    lua.run("for _, one in ipairs(request) do Write.zadd(Keys.purge, {0, one}) end", members)
    count = "return redis.call('ZLEXCOUNT', Keys.purge, low, high)"
    code = f"local low, high = Codec.prefix(request) {count}"
    for prefix in (b"a", b"a\xff", b"\xff", b"\xff\xff", b"", b"c"):
        expected = sum(member.startswith(prefix) for member in members)
        assert lua.run(code, prefix) == expected


@pytest.mark.parametrize("number", [0, 1, 2**31, FOREVER, 2**48 - 1])
def test_times_stay_exact_and_sort(lua: Snippets, number: int) -> None:
    got = lua.run("return {Codec.read6(Codec.n6(request), 1), Codec.digits(request)}", number)
    assert got == [number, str(number)]
    lua.run(
        "Write.hset(Keys.totals, {'n', request}) Write.zadd(Keys.purge, {request, 'n'})", number
    )
    got = lua.run(
        "return {redis.call('HGET', Keys.totals, 'n'), redis.call('ZSCORE', Keys.purge, 'n')}"
    )
    assert [int(one) for one in got] == [number, number]


def test_time_never_goes_back_until_an_operator_resets_it(lua: Snippets) -> None:
    lua.run("Time.keep()")
    lua.now -= 5_000
    assert lua.run("return {Time.now, Time.ahead_ms()}") == [lua.now + 5_000, 5_000]
    lua.run("Time.turn_back()")
    assert lua.run("return {Time.now, Time.ahead_ms()}") == [lua.now, 0]
