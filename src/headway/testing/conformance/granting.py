"""Tokens: set, replaced, revoked, recorded as used; their limit; secrets are never shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.contract.definitions import (
    CloseGate,
    DefineRequest,
    NoteUse,
    RevokeToken,
    Role,
    SetGate,
    SetToken,
    TokenSecret,
    TokenSpec,
)
from headway.contract.views import StatsQuery, TokensQuery, TokenView
from headway.core.errors import InvalidValue, RevisionConflict, UnknownGate
from headway.core.gates.slots import Slots
from headway.testing.conformance.rig import AUTHOR, REASON, ConformanceGroup, Rig

MOST = 10_000
"""Maximum number of tokens in a store."""
STEP = 1_000

ORDERS = TokenSpec(
    id="00000000000000a1",
    name="orders",
    roles=(Role.PRODUCER, Role.VIEWER),
    secrets=(
        TokenSecret(digest="1f" * 32),
        TokenSecret(digest="2e" * 32, until_at=1_900_000_000_001),
    ),
    tenants=("acme", ""),
    lanes=("calls", "send_*"),
    closes=("rate:*", "numbers/+1555"),
    expires_at=1_900_000_000_002,
)
SENDER = TokenSpec(
    id="00000000000000b2",
    name="sender",
    roles=(Role.WORKER,),
    secrets=(TokenSecret(digest="3d" * 32),),
)


NO_TOKENS: dict[str, TokenSpec] = {
    "id in capitals": replace(ORDERS, id="00000000000000A1"),
    "short id": replace(ORDERS, id="a1"),
    "id with a line end": replace(ORDERS, id="00000000000000a1\n"),
    "no name": replace(ORDERS, name=""),
    "long name": replace(ORDERS, name="x" * 513),
    "no role": replace(ORDERS, roles=()),
    "role twice": replace(ORDERS, roles=(Role.VIEWER, Role.VIEWER)),
    "no secret": replace(ORDERS, secrets=()),
    "secret in the place of its digest": replace(
        ORDERS, secrets=(TokenSecret(digest="open sesame"),)
    ),
    "digest in capitals": replace(
        ORDERS, secrets=(ORDERS.secrets[0], TokenSecret(digest="1F" * 32))
    ),
    "long digest": replace(ORDERS, secrets=(TokenSecret(digest="1f" * 33),)),
    "secret until before 1970": replace(
        ORDERS, secrets=(TokenSecret(digest="1f" * 32, until_at=-1),)
    ),
    "end that is no moment": replace(ORDERS, expires_at=2**63),
    "no tenant": replace(ORDERS, tenants=()),
    "tenant with NUL": replace(ORDERS, tenants=("acme\0",)),
    "no lane": replace(ORDERS, lanes=()),
    "lane without a name": replace(ORDERS, lanes=("",)),
    "worker scoped to tenants": replace(ORDERS, roles=(Role.VIEWER, Role.WORKER)),
}


async def tokens(rig: Rig, *ids: str) -> tuple[TokenView, ...]:
    """Return the tokens with these ids, or all."""
    return await rig.store.read(TokensQuery(ids=ids or None))


async def revision(rig: Rig) -> int:
    """Return the revision of the definitions."""
    return (await rig.store.read(StatsQuery())).revision


class TokenGroup(ConformanceGroup):
    """Who may do what over HTTP."""

    async def test_token_is_returned_as_set_with_creator_and_time(self, rig: Rig) -> None:
        await rig.define(SetToken(spec=ORDERS))
        assert await tokens(rig) == (
            TokenView(spec=ORDERS, created_at=rig.clock(), created_by=AUTHOR, used_at=None),
        )

    async def test_tokens_are_read_by_id_all_or_by_name(self, rig: Rig) -> None:
        third = replace(SENDER, id="0000000000000009", name="third")
        await rig.define(*(SetToken(spec=spec) for spec in (SENDER, ORDERS, third)))
        assert [one.spec for one in await tokens(rig)] == [third, ORDERS, SENDER]
        named = await tokens(rig, SENDER.id, third.id, SENDER.id, "f" * 16, "no id")
        assert [one.spec for one in named] == [third, SENDER]
        assert await rig.store.read(TokensQuery(ids=())) == ()

    async def test_replaced_token_keeps_creator_creation_time_and_last_use(self, rig: Rig) -> None:
        await rig.define(SetToken(spec=ORDERS))
        made_at = rig.clock()
        await rig.define(NoteUse(used=((ORDERS.id, made_at + 5),)))
        rig.clock.advance(60_000)
        rotated = replace(ORDERS, secrets=(TokenSecret(digest="4c" * 32),), tenants=None)
        await rig.store.define(DefineRequest(items=(SetToken(spec=rotated),), author="bob"))
        assert await tokens(rig) == (
            TokenView(spec=rotated, created_at=made_at, created_by=AUTHOR, used_at=made_at + 5),
        )

    async def test_setting_an_identical_token_changes_nothing(self, rig: Rig) -> None:
        await rig.define(SetToken(spec=ORDERS), SetToken(spec=SENDER))
        before = await rig.dump()
        await rig.define(SetToken(spec=ORDERS), SetToken(spec=SENDER))
        assert await rig.dump() == before

    async def test_revoked_token_is_gone_and_can_be_created_again(self, rig: Rig) -> None:
        await rig.define(SetToken(spec=ORDERS), SetToken(spec=SENDER))
        await rig.define(NoteUse(used=((ORDERS.id, rig.clock()),)))
        await rig.define(RevokeToken(id=ORDERS.id))
        assert [one.spec for one in await tokens(rig)] == [SENDER]
        assert await tokens(rig, ORDERS.id) == ()
        rig.clock.advance(7)
        await rig.define(SetToken(spec=ORDERS))
        (again,) = await tokens(rig, ORDERS.id)
        assert (again.created_at, again.used_at) == (rig.clock(), None)

    async def test_revoking_an_unknown_token_changes_nothing(self, rig: Rig) -> None:
        await rig.define(SetToken(spec=ORDERS))
        before = await rig.dump()
        await rig.define(RevokeToken(id="f" * 16), RevokeToken(id="no id"))
        assert await rig.dump() == before

    async def test_last_use_is_recorded_and_never_moves_back(self, rig: Rig) -> None:
        await rig.define(SetToken(spec=ORDERS), SetToken(spec=SENDER))
        now = rig.clock()
        await rig.define(NoteUse(used=((ORDERS.id, now + 3), (SENDER.id, now + 1))))
        await rig.define(
            NoteUse(used=((ORDERS.id, now + 2), (SENDER.id, now + 9), (SENDER.id, now + 4)))
        )
        assert [one.used_at for one in await tokens(rig)] == [now + 3, now + 9]

    async def test_use_of_unknown_tokens_is_ignored(self, rig: Rig) -> None:
        await rig.define(SetToken(spec=ORDERS))
        await rig.define(
            NoteUse(used=(("f" * 16, 5), ("no id", 6), (ORDERS.id, 7))), NoteUse(used=())
        )
        (token,) = await tokens(rig)
        assert token.used_at == 7

    async def test_use_of_a_token_changes_no_definitions_and_no_trail(self, rig: Rig) -> None:
        first = await rig.define(SetToken(spec=ORDERS))
        before = await rig.dump()
        assert await rig.define(NoteUse(used=((ORDERS.id, rig.clock()),))) == first
        after = await rig.dump()
        assert after.tokens != before.tokens
        assert replace(after, tokens=before.tokens) == before

    async def test_tokens_raise_the_revision_and_appear_in_the_trail_without_secrets(
        self, rig: Rig
    ) -> None:
        first = await rig.define(SetToken(spec=ORDERS))
        rotated = replace(ORDERS, secrets=ORDERS.secrets[:1])
        second = await rig.define(SetToken(spec=rotated))
        third = await rig.define(RevokeToken(id=ORDERS.id))
        assert first < second < third == await revision(rig)
        trail = (await rig.dump()).trail
        assert [line.target for line in trail] == [ORDERS.id] * 3
        assert {(line.author, line.reason) for line in trail} == {(AUTHOR, REASON)}
        assert trail[0].verb == trail[1].verb != trail[2].verb
        assert trail[0].detail != trail[1].detail
        for line in trail:
            assert ORDERS.name in line.detail
            assert not any(secret.digest[:8] in str(line) for secret in ORDERS.secrets)

    async def test_token_is_not_set_under_an_old_revision(self, rig: Rig) -> None:
        old = await rig.define(SetToken(spec=SENDER))
        await rig.define(SetToken(spec=ORDERS))
        async with rig.refuses(RevisionConflict):
            await rig.define(RevokeToken(id=SENDER.id), revision=old)

    async def test_token_is_set_completely_or_not_at_all(self, rig: Rig) -> None:
        await rig.declare(Slots("line", 2))
        await rig.define(SetToken(spec=SENDER))
        async with rig.refuses(UnknownGate):
            await rig.define(
                SetGate(name="line", capacity=9),
                SetToken(spec=ORDERS),
                RevokeToken(id=SENDER.id),
                NoteUse(used=((ORDERS.id, 5),)),
                CloseGate(name="unknown"),
            )

    @pytest.mark.parametrize("spec", NO_TOKENS.values(), ids=NO_TOKENS)
    async def test_invalid_token_is_refused_and_writes_nothing(
        self, rig: Rig, spec: TokenSpec
    ) -> None:
        await rig.define(SetToken(spec=SENDER))
        before = await rig.dump()
        with pytest.raises(InvalidValue) as refused:
            await rig.define(RevokeToken(id=SENDER.id), SetToken(spec=spec))
        assert await rig.dump() == before
        assert not any(secret.digest in str(refused.value) for secret in spec.secrets)

    async def test_use_at_an_invalid_time_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        await rig.define(SetToken(spec=ORDERS))
        for at in (-1, 2**63):
            async with rig.refuses(InvalidValue):
                await rig.define(NoteUse(used=((ORDERS.id, at),)))

    async def test_ten_thousand_tokens_are_kept_and_one_more_is_refused(self, rig: Rig) -> None:
        specs = [replace(SENDER, id=f"{n:016x}") for n in range(MOST)]
        for begin in range(0, MOST, STEP):
            await rig.define(*(SetToken(spec=spec) for spec in specs[begin : begin + STEP]))
        before = await revision(rig)
        one_more = SetToken(spec=replace(ORDERS, id="f" * 16))
        with pytest.raises(InvalidValue):
            await rig.define(one_more)
        assert await revision(rig) == before
        assert [one.spec for one in await tokens(rig)] == specs
        # Changing a token adds none, and a new token may replace another in one definition.
        await rig.define(SetToken(spec=replace(SENDER, id=specs[0].id, name="renamed")))
        await rig.define(one_more, RevokeToken(id=specs[1].id))
        assert len(await tokens(rig)) == MOST
