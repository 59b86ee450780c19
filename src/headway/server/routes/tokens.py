"""/v1/tokens and /v1/me: managing tokens, and what a token may do."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from operator import attrgetter
from typing import Annotated

from fastapi import Path, Response
from pydantic import Field

from headway.contract.definitions import DefineRequest, RevokeToken, Role, SetToken, TokenSpec
from headway.contract.views import StatsQuery, StatsView, TokensQuery, TokenView
from headway.core.errors import Forbidden, IdConflict, InvalidValue
from headway.runtime.tokens import ShownToken, new_token, rotate, shown_token
from headway.server.access import Reader, needs
from headway.server.bodies.base import Body, FailFastList, Name, Span, TenantName, When, examples
from headway.server.caller import OPEN_CALLER, Caller, Permission, permissions
from headway.server.paging import DEFINED, RepeatKey, WhichPage, check_repeat_key, define, page_of
from headway.server.problems import add_members
from headway.server.replies import answer, page_model, reply
from headway.server.routing import TheService, router
from headway.server.service import Service

MOST_NAMES = 1_000


class TokenBody(Body):
    """A token to create."""

    model_config = examples(
        {"name": "shop", "roles": ["producer"], "tenants": ["acme"], "expires": "90d"}
    )

    name: Name = Field(
        description="Name for people, shown as the author in the trail.", examples=["shop"]
    )
    roles: FailFastList[Annotated[Role, Field(strict=False)]] = Field(
        min_length=1,
        max_length=len(Role),
        description="Roles, which define what the token may do.",
        examples=[["producer"]],
    )
    tenants: FailFastList[TenantName] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_NAMES,
        description="Tenants that it is limited to; null for any.",
    )
    lanes: FailFastList[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_NAMES,
        description="Lanes, or patterns such as send_*, that the token is limited to; null for "
        "any.",
    )
    closes: FailFastList[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_NAMES,
        description="Gates that its runs may close in a settlement, by name or by a pattern such "
        "as rate:*; not needed for roles that may close gates.",
    )
    expires: When | None = Field(
        default=None, description="When it expires; null for never.", examples=["90d"]
    )


class RotateBody(Body):
    """How long the old secret stays valid."""

    model_config = examples({"grace": "1h"})

    grace: Span = Field(default=0, description="Time after which only the new secret is accepted.")


ROUTES = router("tokens", prefix="/v1/tokens")

Admin = Annotated[Caller, needs(Permission.TOKENS)]
TokenId = Annotated[
    str, Path(pattern="^[0-9a-f]{16}$", description="Id of the token, as shown in the listing.")
]
_AT_ONCE = RotateBody()

_NEW = reply(
    "NewToken",
    "The text of a token, shown only once.",
    id=(str, "Id of the token, the part of it that is not secret."),
    token=(str, "The token, which its holder sends."),
    expires_at=(int | None, "When the token expires; null for never."),
)
_ROTATED = reply(
    "RotatedToken",
    "The new text of a token, shown only once.",
    id=(str, "Id of the token, the part of it that is not secret."),
    token=(str, "The token, which its holder sends from now on."),
    old_until_at=(int | None, "Until when the old one is accepted; null if it no longer is."),
)


@ROUTES.get("", summary="List tokens", response_model=page_model(ShownToken))
async def list_tokens(asked: WhichPage, service: TheService, caller: Admin) -> Response:
    """List tokens by id, with when each was last used and when it expires; never their secrets."""
    now = await service.now()
    found = await service.store.read(TokensQuery())
    shown = [shown_token(one, now) for one in found if _within(caller, one.spec)]
    return answer(page_of(shown, attrgetter("id"), asked))


@ROUTES.post("", summary="Create a token", status_code=201, response_model=_NEW)
async def make_token(
    body: TokenBody, service: TheService, caller: Admin, repeat_key: RepeatKey = None
) -> Response:
    """Create a token and return its text, only once: the store keeps only a digest of its secret.

    It may have no more reach than the caller's own. With the `Idempotency-Key` header, a repeat
    creates no second token: it gives the first one a new secret, and only the last reply is valid.

    Raises:
        Forbidden: it would have more reach than the caller.
        InvalidValue: it would have expired already.
        IdConflict: another token was created under this Idempotency-Key.
    """
    before = await service.store.read(StatsQuery())
    made = new_token(None if repeat_key is None else _repeated_id(caller, repeat_key))
    spec = TokenSpec(
        id=made.id,
        name=body.name,
        roles=tuple(dict.fromkeys(body.roles)),
        secrets=(made.secret,),
        tenants=None if body.tenants is None else tuple(body.tenants),
        lanes=None if body.lanes is None else tuple(body.lanes),
        closes=tuple(dict.fromkeys(body.closes or ())),
        expires_at=None if body.expires is None else body.expires.ahead("body.expires", before.now),
    )
    if not _within(caller, spec):
        message = "the token would have more reach than the one that creates it"
        raise Forbidden(message, hint="its roles, tenants, lanes and gates must be among your own")
    if repeat_key is not None:
        _check_same(await service.store.read(TokensQuery(ids=(made.id,))), spec)
    await _set(service, caller, spec, before)
    return answer({"id": made.id, "token": made.text, "expires_at": spec.expires_at}, 201)


@ROUTES.delete("/{id}", summary="Revoke a token", response_model=DEFINED)
async def revoke_token(id: TokenId, service: TheService, caller: Admin) -> Response:
    """Revoke a token; this server refuses it at once, other servers within seconds."""
    await _token(service, caller, id)
    revoked = await define(service, caller, RevokeToken(id=id))
    service.tokens.forget(id)
    return revoked


@ROUTES.post("/{id}/rotate", summary="Rotate a token's secret", response_model=_ROTATED)
async def rotate_token(
    id: TokenId, service: TheService, caller: Admin, body: RotateBody = _AT_ONCE
) -> Response:
    """Give a token a new secret and return its text, only once; its permissions stay the same."""
    before = await service.store.read(StatsQuery())
    view = await _token(service, caller, id)
    spec, made = rotate(view.spec, before.now, body.grace)
    await _set(service, caller, spec, before)
    old = [one.until_at for one in spec.secrets if one.until_at is not None]
    return answer({"id": made.id, "token": made.text, "old_until_at": max(old, default=None)})


def _repeated_id(caller: Caller, key: str) -> str:
    return sha256(f"{caller.id}\x1f{check_repeat_key(key)}".encode()).hexdigest()[:16]


def _check_same(found: tuple[TokenView, ...], spec: TokenSpec) -> None:
    for view in found:
        old = view.spec
        if replace(old, secrets=spec.secrets, expires_at=spec.expires_at) != spec:
            message = "another token was created under this Idempotency-Key"
            raise IdConflict(message, hint="use a new key for another token")


def _within(caller: Caller, spec: TokenSpec) -> bool:
    """Return whether the permissions and scope of a token are within those of a caller."""
    return (
        permissions(map(Role, spec.roles)) <= caller.may
        and _among(spec.tenants, caller.tenants)
        and _among(spec.lanes, caller.lanes)
        and _may_close(spec.closes, caller)
    )


def _may_close(gates: tuple[str, ...], caller: Caller) -> bool:
    if caller.sees_all and Permission.DEFINE in caller.may:
        return True
    return set(gates) <= set(caller.closes)


def _among(names: tuple[str, ...] | None, ours: tuple[str, ...] | None) -> bool:
    return ours is None or (names is not None and set(names) <= set(ours))


async def _token(service: Service, caller: Caller, id: str) -> TokenView:
    found = await service.store.read(TokensQuery(ids=(id,)))
    if not found or not _within(caller, found[0].spec):
        message = f"there is no token {id!r}"
        error = InvalidValue(message, hint="GET /v1/tokens lists them")
        add_members(error, status=404)
        raise error
    return found[0]


async def _set(service: Service, caller: Caller, spec: TokenSpec, before: StatsView) -> None:
    # With the revision: if two callers set the token at once, one of them gets a conflict.
    items = (SetToken(spec=spec),)
    request = DefineRequest(items=items, author=caller.name, revision=before.revision)
    await service.store.define(request)
    service.tokens.forget(spec.id)


ME = router("tokens", prefix="/v1/me")

_ME = reply(
    "Me",
    "The caller as the server identifies it.",
    id=(str, "Id of the token."),
    name=(str, "Name of the token, shown as the author in the trail."),
    may=(list[Permission], "Permissions of the token."),
    tenants=(list[str] | None, "Tenants that the token is limited to; null for any."),
    lanes=(list[str] | None, "Lanes or patterns that the token is limited to; null for any."),
    closes=(list[str], "Gates, or patterns of gates, that its runs may close."),
    open=(bool, "Whether the server needs no token."),
)


@ME.get("", summary="Get the caller", response_model=_ME)
async def me(caller: Reader) -> Response:
    """Return what the caller's token may do, and for which tenants and lanes."""
    return answer(
        {
            "id": caller.id,
            "name": caller.name,
            "may": sorted(caller.may),
            "tenants": caller.tenants,
            "lanes": caller.lanes,
            "closes": caller.closes,
            "open": caller is OPEN_CALLER,
        }
    )
