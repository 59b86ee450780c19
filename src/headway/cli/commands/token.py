"""`headway token`: the tokens of the server's callers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.defining import definition_request
from headway.cli.options import Signed, duration_option
from headway.cli.session import CommandSession
from headway.contract.definitions import RevokeToken, Role, SetToken, TokenSpec
from headway.contract.store import Store
from headway.contract.views import StatsQuery, StatsView, TokensQuery, TokenView
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue, Unauthenticated
from headway.core.instant import optional_moment
from headway.runtime.records import record
from headway.runtime.tokens import NewToken, ShownToken, new_token, parse, rotate, shown_token

app = new_command()

_TokenId = Annotated[str, typer.Argument(metavar="ID", help="Id of the token, as shown by `list`.")]


@command(app, "list")
@command(app, default=True)
def list_(session: CommandSession) -> None:
    """List tokens with their last use and expiry, but never their secrets.

    With --json: {"tokens": [...]}.
    """
    found, now = session.ask_at(TokensQuery())
    shown = sorted((shown_token(view, now) for view in found), key=lambda one: (one.name, one.id))
    session.terminal.listing(
        {"tokens": [record(one) for one in shown]},
        ["ID", "NAME", "ROLES", "TENANTS", "LANES", "CLOSES", "LAST USED", "ENDS", "MADE BY", ""],
        [_row(session, one, now) for one in shown],
        empty="no tokens: create one with headway token create",
    )


def _row(session: CommandSession, token: ShownToken, now: int) -> list[str]:
    ended = token.expires_at is not None and token.expires_at <= now
    old = session.clock.at(token.old_until_at)
    return [
        token.id,
        token.name,
        ", ".join(token.roles),
        _scope(token.tenants),
        _scope(token.lanes),
        ", ".join(token.closes),
        session.clock.at(token.used_at) or "never",
        session.clock.at(token.expires_at) or "never",
        token.created_by,
        "ended" if ended else f"old secret until {old}" if old else "",
    ]


def _scope(names: tuple[str, ...] | None) -> str:
    return "any" if names is None else ", ".join(name or '""' for name in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """The scope of a new token, and its expiry."""

    tenant: Annotated[
        list[str] | None,
        typer.Option(metavar="TENANT", help="Restrict the token to this tenant; repeatable."),
    ] = None
    lane: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LANE",
            help="Restrict the token to this lane or pattern ('send_*'); repeatable.",
        ),
    ] = None
    close: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GATE",
            help="Allow its runs to close this gate or pattern ('rate:*'); repeatable.",
        ),
    ] = None
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help='When it expires: after a duration ("90d"), or at an instant. Never by default.',
        ),
    ] = None

    def token(self, made: NewToken, name: str, roles: list[Role], now: int) -> TokenSpec:
        """Return a token with this scope.

        Args:
            now: The store's time, ms UTC.
        """
        moment = optional_moment("--expires", self.expires)
        expires_at = None if moment is None else moment.ahead("--expires", now)
        return TokenSpec(
            id=made.id,
            name=name,
            roles=tuple(dict.fromkeys(roles)),
            secrets=(made.secret,),
            tenants=tuple(dict.fromkeys(self.tenant)) if self.tenant else None,
            lanes=tuple(dict.fromkeys(self.lane)) if self.lane else None,
            closes=tuple(dict.fromkeys(self.close or ())),
            expires_at=expires_at,
        )


@command(app, "create")
def create(
    session: CommandSession,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of the token; recorded as the author in the trail."
        ),
    ],
    role: Annotated[list[Role], typer.Option(help="What the token may do; repeatable.")],
    reach: Reach,
    signed: Signed,
) -> None:
    """Create a token and print it once: the store keeps only a digest of its secret.

    With --json: {"id": ..., "token": ..., "expires_at": ..., "revision": ...}.
    """
    made = new_token()

    async def work(store: Store) -> tuple[int, int | None]:
        spec = reach.token(made, name, role, (await store.read(StatsQuery())).now)
        return await store.define(
            definition_request(session, SetToken(spec=spec), signed)
        ), spec.expires_at

    revision, expires_at = session.with_store(work)
    _print_token(session, made, revision, "it is not shown again", expires_at=expires_at)


@command(app, "rotate")
def rotate_(
    session: CommandSession,
    token: _TokenId,
    signed: Signed,
    grace: Annotated[
        str, duration_option('How long the old secret stays valid, such as "1h".')
    ] = "0s",
) -> None:
    """Give a token a new secret and print it once; its permissions stay.

    With --json: {"id": ..., "token": ..., "old_until_at": ..., "revision": ...}.

    Raises:
        RevisionConflict: definitions were changed concurrently; nothing was written.
    """
    grace_ms = parse_duration(grace)

    async def work(store: Store) -> tuple[NewToken, int, int | None]:
        before, view = await _find(store, token)
        spec, made = rotate(view.spec, before.now, grace_ms)
        request = definition_request(session, SetToken(spec=spec), signed)
        # If two operators rotate at once, one must get an error: its secret was not set.
        revision = await store.define(replace(request, revision=before.revision))
        old = shown_token(replace(view, spec=spec), before.now).old_until_at
        return made, revision, old

    made, revision, old_until_at = session.with_store(work)
    until = f"until {session.clock.at(old_until_at)}" if old_until_at else "no more"
    said = f"it is not shown again; the old one is accepted {until}"
    _print_token(session, made, revision, said, old_until_at=old_until_at)


@command(app, "revoke")
def revoke(session: CommandSession, token: _TokenId, signed: Signed) -> None:
    """Delete a token; servers refuse it within seconds."""

    async def work(store: Store) -> tuple[TokenView, int]:
        _, view = await _find(store, token)
        return view, await store.define(
            definition_request(session, RevokeToken(id=view.spec.id), signed)
        )

    view, revision = session.with_store(work)
    session.terminal.reply({"revision": revision}, f"{view.spec.name} ({view.spec.id}) is revoked")


async def _find(store: Store, token: str) -> tuple[StatsView, TokenView]:
    try:
        token, _ = parse(token)
    except Unauthenticated:
        # The value may contain a secret, so the message must not show it all.
        token = token.removeprefix("hw_")[:16]
    before = await store.read(StatsQuery())
    found = await store.read(TokensQuery(ids=(token,)))
    if not found:
        message = f"there is no token {token!r}"
        raise InvalidValue(message, hint="headway token list shows them")
    return before, found[0]


def _print_token(
    session: CommandSession, made: NewToken, revision: int, said: str, **more: int | None
) -> None:
    if session.json:
        document = {"id": made.id, "token": made.text, **more, "revision": revision}
        session.terminal.document(document)
        return
    session.terminal.line(made.text)
    session.terminal.remark(f"this is the token {made.id}: save it now, {said}", "dim")
