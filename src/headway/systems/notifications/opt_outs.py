"""Opt-outs by recipients: STOP and START by SMS, and one click in an e-mail.

Source: Twilio, "Twilio support for opt-out keywords", "Advanced Opt-Out"; RFC 8058
(one-click unsubscription).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from html import escape
from typing import Annotated, NamedTuple
from urllib.parse import quote

from fastapi import Depends, Path, Query, Request
from fastapi.responses import HTMLResponse, Response
from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import Unauthenticated
from headway.runtime.signals import is_signed, sign
from headway.server.access import Public
from headway.server.routing import TheService, router
from headway.systems.notifications.context import NotifyContext, TheContext
from headway.systems.notifications.notification import Channel
from headway.systems.notifications.records import (
    KEEP_OPT_OUT,
    STOPPED,
    OptOut,
    Recipient,
    change_opt_outs,
)
from headway.systems.telephony.providers import Provider, read_webhook
from headway.systems.telephony.texts import Inbound

STOP_WORDS = frozenset(
    {"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"}
)
START_WORDS = frozenset({"START", "UNSTOP"})
"""Without YES, which Twilio also accepts: it may be a reply to another question."""
_AROUND = re.compile(r"^\W+|\W+$")

PURPOSE = "headway unsubscribe"
PATH = "/notifications/unsubscribe/{recipient}/{category}"
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width"><title>Unsubscribe</title><p>{}'
)
CSP = "default-src 'none'; form-action 'self'; frame-ancestors 'none'"

ROUTES = router("system: notifications", operations="notify_")

_log = logging.getLogger("headway.notifications")


def unsubscribe_url(context: NotifyContext, recipient: Recipient, category: str) -> str | None:
    """Return the URL for an e-mail's List-Unsubscribe header.

    It is the URL of the settings, or else one of this server, which needs `public_url` and a
    `signing_key` and does not expire. Mail programs show it as a button next to the mail, so this
    server offers none for urgent categories: a click would stop one-time passwords.
    """
    settings, parts = context.settings, context.parts
    if settings.unsubscribe_url is not None:
        given = settings.unsubscribe_url.replace("{recipient}", recipient.id)
        return given.replace("{category}", category)
    if not parts.base_url or not parts.signing_keys or category in settings.urgent:
        return None
    path = PATH.format(recipient=recipient.id, category=category)
    email = recipient.email or ""
    signature = sign(parts.signing_keys[0], PURPOSE, recipient.id, category, email)
    return f"{parts.base_url}{path}/{signature}?email={quote(email, safe='@')}"


class _Link(NamedTuple):
    """A link that this server has signed; older ones have no e-mail address."""

    recipient: str
    category: str
    email: str | None


async def _link(
    recipient: Annotated[str, Path(description="Id of the recipient.")],
    category: Annotated[str, Path(description="Category of the e-mail.", examples=["news"])],
    signature: Annotated[str, Path(description="Signature from the e-mail's link.")],
    context: TheContext,
    email: Annotated[str | None, Query(description="Address of the e-mail.")] = None,
) -> _Link:
    """Validate the signature of a link.

    Raises:
        Unauthenticated: the signature is not this server's for these values.
    """
    signed = (recipient, category) if email is None else (recipient, category, email)
    if not is_signed(context.parts.signing_keys, signature, PURPOSE, *signed):
        message = "the unsubscribe link is not valid: its signature is not this server's"
        raise Unauthenticated(message, hint="use the complete link from the e-mail")
    return _Link(recipient, category, email)


_OptOutLink = Annotated[_Link, Depends(_link)]


@ROUTES.get(
    PATH + "/{signature}",
    summary="Show the unsubscribe button",
    response_class=HTMLResponse,
)
async def ask_unsubscribe(link: _OptOutLink, _: Public) -> Response:
    """Show a page with a button that posts here, and change nothing: mail scanners fetch links.

    No token is needed: the link is signed.
    """
    asks = f"E-mails of the category {escape(link.category)}:"
    return _page(f'{asks}<form method="post"><button>Unsubscribe</button></form>')


@ROUTES.post(
    PATH + "/{signature}",
    summary="Unsubscribe from a category of e-mails",
    response_class=HTMLResponse,
)
async def unsubscribe(link: _OptOutLink, context: TheContext, _: Public) -> Response:
    """Opt the recipient of an e-mail out of its category, for e-mail only (RFC 8058).

    No token is needed: the link is signed. The body is ignored. 503: the directory is unavailable,
    and nothing was changed.
    """
    opt_out = f"{Channel.EMAIL}:{link.category}"
    async with context.directory.change() as session:
        found = await _set(session, Recipient.id == link.recipient, opt_out, out=True)
        # The link's address counts even if its recipient was removed.
        for address in [one.email for one in found] if link.email is None else [link.email]:
            if address:
                values = {"address": address, "opt_out": opt_out}
                await change_opt_outs(session, KEEP_OPT_OUT, values)
    return _page(f"You will get no more e-mails of the category {escape(link.category)}.")


@ROUTES.post(
    "/notifications/hooks/{provider}/texts",
    summary="Receive a STOP or START from a recipient",
    response_class=Response,
)
async def receive_text(
    provider: Provider, request: Request, service: TheService, context: TheContext, _: Public
) -> Response:
    """Opt a phone number out of SMS at STOP, and back in at START if a STOP opted it out.

    Twilio's own interpretation (`OptOutType`) decides, if it is given; otherwise the word does,
    without surrounding punctuation. Any other text changes nothing. No token is needed: the
    provider's signature is verified. 503: the directory is unavailable, and nothing was changed.
    """
    telephony = context.telephony
    webhook = await read_webhook(service, telephony, provider, request)
    inbound = telephony.text(provider).read_inbound(webhook)
    word = "" if inbound is None else _word_of(inbound)
    if inbound is not None and word in STOP_WORDS | START_WORDS:
        out, number = word in STOP_WORDS, inbound.from_
        async with context.directory.change() as session:
            await _set(session, Recipient.phone == number, STOPPED, out=out)
            if out:
                await session.execute(KEEP_OPT_OUT, {"address": number, "opt_out": STOPPED})
            else:
                kept = delete(OptOut).where(OptOut.address == number, OptOut.opt_out == STOPPED)
                await session.execute(kept)
    body, media = telephony.text(provider).reply_text(None)
    return Response(body, media_type=media)


def _word_of(inbound: Inbound) -> str:
    """Return the provider's keyword or the text, in upper case without punctuation around it."""
    given = inbound.text if inbound.keyword is None else inbound.keyword
    return _AROUND.sub("", given).upper()


def _page(text: str) -> Response:
    return HTMLResponse(PAGE.format(text), headers={"Content-Security-Policy": CSP})


async def _set(
    session: AsyncSession, chosen: ColumnElement[bool], opt_out: str, *, out: bool
) -> Sequence[Recipient]:
    """Add or remove an opt-out of the chosen recipients, and return them; a repeat is harmless."""
    asked = select(Recipient).where(chosen).order_by(Recipient.id).with_for_update()
    found = (await session.scalars(asked)).all()
    for one in found:
        outs = one.preferences.get("opt_out", ())
        if out is not (opt_out in outs):
            outs = [*outs, opt_out] if out else [other for other in outs if other != opt_out]
            one.preferences = {**one.preferences, "opt_out": outs}
            one.version += 1
            _log.info("opt-out changed recipient=%s opt_out=%s out=%s", one.id, opt_out, out)
    return found
