"""Tokens allow no job to start that could not start before, so they wake no waiter."""

from __future__ import annotations

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import (
    CloseGate,
    DefineRequest,
    Item,
    NoteUse,
    RevokeToken,
    SetToken,
)
from headway.contract.store import Store
from headway.stores import open_store
from headway.testing.conformance.granting import ORDERS, SENDER
from tests.servers.stores import EVERYWHERE, NewUrl


async def seen(store: Store) -> int:
    """Return a claim's counter of how often this process was woken."""
    lanes = (("main", 1),)
    return (await store.claim(ClaimRequest(worker="w", request=1, lanes=lanes, n=1, free=1))).seen


async def define(store: Store, *items: Item) -> None:
    await store.define(DefineRequest(items=items, author="ann"))


@pytest.mark.parametrize("kind", EVERYWHERE)
async def test_tokens_wake_no_waiter_but_other_definitions_do(new_url: NewUrl, kind: str) -> None:
    store = open_store(new_url(kind))
    before = await seen(store)
    await define(store, SetToken(spec=ORDERS), SetToken(spec=SENDER))
    await define(store, NoteUse(used=((ORDERS.id, 5),)))
    await define(store, RevokeToken(id=ORDERS.id))
    assert await seen(store) == before
    await define(store, SetToken(spec=ORDERS), CloseGate(name="all"))
    assert await seen(store) > before
    await store.close()
