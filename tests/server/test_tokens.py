"""Tokens over HTTP: shown once, never wider than their creator's, and dead once revoked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest

import headway as hw
from headway.contract.definitions import DefineRequest, RevokeToken, Role, SetToken, TokenSpec
from headway.contract.store import Store
from headway.contract.views import Query, StatsQuery, TokensQuery
from headway.core.errors import StoreUnavailable
from headway.runtime.timing import Timing
from headway.runtime.tokens import new_token, parse
from headway.server.access import CACHED_WITHOUT_STORE_S, Authenticator
from headway.stores import open_store
from headway.testing.faulty import StoreProxy
from tests.server.problems import problem
from tests.server.rig import Rig, serving

ADMIN = Role.ADMIN
Reply = TypeVar("Reply")


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as one:
        yield one


async def make(rig: Rig, who: Role | str = ADMIN, **body: Any) -> dict[str, Any]:
    said = {"name": "shop", "roles": ["producer"], **body}
    reply = await rig.call(who, "POST", "/v1/tokens", said)
    assert reply.status_code == 201, reply.text
    return reply.json()


async def test_new_token_works_at_once_and_is_shown_only_once(rig: Rig):
    made = await make(rig, tenants=["acme"], expires="90d")
    me = await rig.ask(made["token"], "/v1/me")
    assert (me["id"], me["name"], me["tenants"]) == (made["id"], "shop", ["acme"])
    secret = made["token"].split("_", 2)[2]
    listed = await rig.call(ADMIN, "GET", "/v1/tokens")
    trail = await rig.call(ADMIN, "GET", "/v1/trail")
    (kept,) = await rig.store.read(TokensQuery(ids=(made["id"],)))
    for text in (listed.text, trail.text):
        assert secret not in text
        assert kept.spec.secrets[0].digest not in text
    one = next(row for row in listed.json()["rows"] if row["id"] == made["id"])
    assert (one["created_by"], one["roles"], one["expires_at"]) == (
        "admin",
        ["producer"],
        made["expires_at"],
    )


async def test_first_token_closes_an_open_server_at_once():
    async with serving(tokens=False) as rig:
        reply = await rig.call(None, "POST", "/v1/tokens", {"name": "boss", "roles": ["admin"]})
        problem(await rig.call(None, "GET", "/v1/me"), 401, "unauthenticated")
        assert (await rig.ask(reply.json()["token"], "/v1/me"))["open"] is False


async def test_revoked_token_is_refused_at_once(rig: Rig):
    made = await make(rig)
    assert (await rig.ask(made["token"], "/v1/me"))["id"] == made["id"]
    assert (await rig.call(ADMIN, "DELETE", f"/v1/tokens/{made['id']}")).status_code == 200
    problem(await rig.call(made["token"], "GET", "/v1/me"), 401, "unauthenticated")
    problem(await rig.call(ADMIN, "DELETE", f"/v1/tokens/{made['id']}"), 404, "invalid_value")


async def test_rotated_token_accepts_the_old_secret_during_its_grace(rig: Rig):
    made = await make(rig)
    path = f"/v1/tokens/{made['id']}/rotate"
    second = (await rig.call(ADMIN, "POST", path, {"grace": "1h"})).json()
    assert second["old_until_at"] is not None
    for text in (made["token"], second["token"]):
        assert (await rig.ask(text, "/v1/me"))["id"] == made["id"]
    third = (await rig.call(ADMIN, "POST", path)).json()
    for text in (made["token"], second["token"]):
        problem(await rig.call(text, "GET", "/v1/me"), 401, "unauthenticated")
    assert (await rig.ask(third["token"], "/v1/me"))["id"] == made["id"]
    problem(await rig.call(ADMIN, "POST", f"/v1/tokens/{'0' * 16}/rotate"), 404, "invalid_value")


async def test_repeat_under_one_idempotency_key_creates_no_second_token(rig: Rig):
    headers = {"Idempotency-Key": "k"}
    body = {"name": "shop", "roles": ["producer"]}
    first = (await rig.call(ADMIN, "POST", "/v1/tokens", body, headers=headers)).json()
    again = (await rig.call(ADMIN, "POST", "/v1/tokens", body, headers=headers)).json()
    assert again["id"] == first["id"]
    problem(await rig.call(first["token"], "GET", "/v1/me"), 401, "unauthenticated")
    assert (await rig.ask(again["token"], "/v1/me"))["name"] == "shop"
    boss = await rig.token(ADMIN, name="boss")
    theirs = (await rig.call(boss, "POST", "/v1/tokens", body, headers=headers)).json()
    assert theirs["id"] != first["id"]
    for other in ({"roles": ["admin"]}, {"tenants": ["acme"]}, {"closes": ["rate:*"]}):
        reply = await rig.call(ADMIN, "POST", "/v1/tokens", {**body, **other}, headers=headers)
        problem(reply, 409, "id_conflict")


async def test_no_token_exceeds_the_one_that_creates_it(rig: Rig):
    of_tenant = await rig.token(ADMIN, tenants=["acme"])
    of_lanes = await rig.token(ADMIN, lanes=["send_*"])
    for who, body in (
        (of_tenant, {}),
        (of_tenant, {"tenants": ["acme", "other"]}),
        (of_lanes, {}),
        (of_lanes, {"lanes": ["send_mail", "send_*"]}),
        (of_lanes, {"lanes": ["*"]}),
    ):
        said = {"name": "more", "roles": ["producer"], **body}
        problem(await rig.call(who, "POST", "/v1/tokens", said), 403, "forbidden")
    made = await make(rig, of_tenant, tenants=["acme"])
    listed = (await rig.ask(of_tenant, "/v1/tokens"))["rows"]
    assert {made["id"], of_tenant.split("_")[1]} == {one["id"] for one in listed}
    boss = rig.tokens[ADMIN].split("_")[1]
    for method, path in (("DELETE", ""), ("POST", "/rotate")):
        reply = await rig.call(of_tenant, method, f"/v1/tokens/{boss}{path}")
        problem(reply, 404, "invalid_value")
    assert (await rig.ask(ADMIN, "/v1/me"))["id"] == boss


async def test_tokens_are_listed_in_pages(rig: Rig):
    seen: list[str] = []
    cursor = None
    while True:
        asked = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = await rig.ask(ADMIN, "/v1/tokens", **asked)
        seen += [one["id"] for one in page["rows"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == sorted(text.split("_")[1] for text in rig.tokens.values())


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "x"},
        {"name": "", "roles": ["viewer"]},
        {"name": "x", "roles": []},
        {"name": "x", "roles": ["king"]},
        {"name": "x", "roles": ["viewer"], "tenants": []},
        {"name": "x", "roles": ["worker"], "tenants": ["acme"]},
        {"name": "x", "roles": ["viewer"], "expires": "soon"},
        {"name": "x", "roles": ["viewer"], "expires": "2020-01-01T00:00Z"},
        {"name": "x", "roles": ["viewer"], "expires": "0s"},
        {"name": "x", "roles": ["viewer"], "secrets": []},
        {"name": "x", "roles": ["viewer"], "id": "0" * 16},
    ],
)
async def test_invalid_token_is_refused(rig: Rig, body: object):
    problem(await rig.call(ADMIN, "POST", "/v1/tokens", body), 422, "invalid_value")


class Together(StoreProxy):
    """Two reads of the store's counts return together, once a barrier is set."""

    meeting: asyncio.Barrier | None = None

    async def read(self, query: Query[Reply]) -> Reply:
        reply = await super().read(query)
        if self.meeting is not None and isinstance(query, StatsQuery):
            await self.meeting.wait()
        return reply


async def test_reply_to_one_of_two_concurrent_rotations_says_that_its_secret_is_not_set():
    store = Together(open_store("memory://"))
    async with serving(app=hw.App(store=store)) as rig:
        made = await make(rig)
        store.meeting = asyncio.Barrier(2)
        path = f"/v1/tokens/{made['id']}/rotate"
        replies = await asyncio.gather(*(rig.call(ADMIN, "POST", path) for _ in range(2)))
        done, refused = sorted(replies, key=lambda one: one.status_code)
        problem(refused, 409, "revision_conflict")
        assert (await rig.ask(done.json()["token"], "/v1/me"))["id"] == made["id"]
    await store.close()


class Hand(Timing):
    """A clock that the test advances."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def wall_at(self) -> int:
        return int(1000 * self.now)


class Leaving(StoreProxy):
    """A store that is unreachable while the test says so."""

    away = False

    async def _call(self, name: str, operation: Callable[[], Awaitable[Reply]]) -> Reply:
        if self.away:
            raise StoreUnavailable(name)
        return await operation()


@pytest.mark.parametrize("is_open", [False, True])
async def test_cached_tokens_are_trusted_for_a_while_only_during_an_outage(*, is_open: bool):
    store, clock, new = Leaving(open_store("memory://")), Hand(), new_token()
    if not is_open:
        spec = TokenSpec(id=new.id, name="shop", roles=(Role.VIEWER,), secrets=(new.secret,))
        await store.define(DefineRequest(items=(SetToken(spec=spec),), author="tester"))
    callers = Authenticator(store, clock, open_here=is_open)
    store.away = True
    with pytest.raises(StoreUnavailable):  # nothing had been read yet
        await callers.caller(new.text)
    store.away = False
    caller = await callers.caller(new.text)
    assert caller is not None
    store.away = True
    for _ in range(3):
        clock.now += CACHED_WITHOUT_STORE_S / 4
        assert await callers.caller(new.text) is not None
    clock.now += CACHED_WITHOUT_STORE_S / 4
    with pytest.raises(StoreUnavailable):
        await callers.caller(new.text)
    # A stream shows the outage, so it continues.
    assert await callers.may_stay(f"Bearer {new.text}", caller)
    await store.close()


async def test_last_use_of_a_token_is_stored_from_time_to_time_after_an_outage_and_at_the_end():
    app, clock = hw.App(store=open_store("memory://")), Hand()
    async with serving(app=app) as rig:
        text = await rig.token(Role.VIEWER)
        await rig.ask(text, "/v1/me")
    token, _ = parse(text)
    (stopped,) = await app.store.read(TokensQuery(ids=(token,)))
    assert stopped.used_at is not None
    clock.now = stopped.used_at / 1000
    store = Leaving(app.store)
    callers = Authenticator(store, clock, open_here=False)
    for _ in range(2):
        clock.now += 3
        assert await callers.caller(text) is not None
    store.away = True
    await callers.note()  # fails, and is repeated by the next
    store.away = False
    await callers.note()
    (later,) = await app.store.read(TokensQuery(ids=(token,)))
    assert later.used_at == clock.wall_at() > stopped.used_at + 5_000
    await app.store.close()


class Late(StoreProxy):
    """A store whose next read of tokens returns only after another change."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def read(self, query: Query[Reply]) -> Reply:
        found = await super().read(query)
        if isinstance(query, TokensQuery) and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return found


async def test_token_revoked_while_it_is_read_is_refused_at_once():
    store, clock, new = Late(open_store("memory://")), Hand(), new_token()
    spec = TokenSpec(id=new.id, name="shop", roles=(Role.VIEWER,), secrets=(new.secret,))
    await store.define(DefineRequest(items=(SetToken(spec=spec),), author="tester"))
    callers = Authenticator(store, clock, open_here=False)

    async def revoke() -> None:
        await store.define(DefineRequest(items=(RevokeToken(id=new.id),), author="tester"))
        callers.forget(new.id)

    store.meanwhile = revoke
    # This request came first, so either answer is right.
    await callers.caller(new.text)
    assert await callers.caller(new.text) is None
    await store.close()


async def test_first_token_created_while_tokens_are_read_closes_the_server_at_once():
    store, clock, new = Late(open_store("memory://")), Hand(), new_token()
    spec = TokenSpec(id=new.id, name="shop", roles=(Role.VIEWER,), secrets=(new.secret,))
    callers = Authenticator(store, clock, open_here=True)

    async def create() -> None:
        await store.define(DefineRequest(items=(SetToken(spec=spec),), author="tester"))
        callers.forget(new.id)

    store.meanwhile = create
    await callers.is_open()
    assert not await callers.is_open()
    await store.close()


class Silent(StoreProxy):
    """A store that does not respond in time."""

    silent = False

    async def _call(self, name: str, operation: Callable[[], Awaitable[Reply]]) -> Reply:
        if self.silent:
            raise TimeoutError
        return await operation()


async def test_log_says_why_cached_tokens_are_used(caplog: pytest.LogCaptureFixture):
    store, clock = Silent(open_store("memory://")), Hand()
    callers = Authenticator(store, clock, open_here=True)
    assert await callers.caller(None) is not None
    store.silent = True
    clock.now += CACHED_WITHOUT_STORE_S / 4
    assert await callers.caller(None) is not None
    assert [one.getMessage() for one in caplog.records] == [
        "using cached tokens: the store did not respond"
    ]
    await store.close()
