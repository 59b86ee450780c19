"""Who looks: the server's tokens, kept by the browser in a cookie that only the dashboard reads.

The cookie holds the token itself, so that it is known after a restart and to every server of the
store, and ends when the token does. Scripts cannot read it, another site's page cannot make a
browser send it, and no route outside `/ui` is sent it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from urllib.parse import quote, unquote, urlsplit

from fastapi import Request, Response

from headway.core.errors import Forbidden

BASE = "/ui"
COOKIE = "headway_token"
SAID = "headway_said"
"""The cookie of a message that the next page shows once."""
SAID_S = 30
MOST_SAID = 1_000

_HERE = secrets.token_bytes(32)
"""For forms of those without a token: another process refuses them: they are opened again."""


def token_of(request: Request) -> str | None:
    """Return the token that the browser keeps; None without one."""
    return request.cookies.get(COOKIE) or None


def authorization(request: Request) -> str | None:
    """Return the token as a program's header Authorization; None without one."""
    token = token_of(request)
    return None if token is None else f"Bearer {token}"


def keep_token(request: Request, response: Response, token: str) -> None:
    """Let the browser keep a token, until it is closed."""
    _set(request, response, COOKIE, token)


def forget_token(request: Request, response: Response) -> None:
    """Let the browser forget its token."""
    _set(request, response, COOKIE, "", seconds=0)


def say(request: Request, response: Response, message: str) -> None:
    """Let the next page show a message."""
    _set(request, response, SAID, quote(message[:MOST_SAID]), seconds=SAID_S)


def said(request: Request, response: Response) -> None:
    """Forget a message that was shown."""
    if SAID in request.cookies:
        _set(request, response, SAID, "", seconds=0)


def message_of(request: Request) -> str:
    """Return the message that the last form left; empty without any."""
    return unquote(request.cookies.get(SAID, ""))[:MOST_SAID]


def form_token(request: Request) -> str:
    """Return the token that a form must send back: a page of another site cannot know it."""
    token = token_of(request)
    key = _HERE if token is None else hashlib.sha256(token.encode()).digest()
    return hmac.new(key, b"headway dashboard form", hashlib.sha256).hexdigest()


def check_form(request: Request, given: str) -> None:
    """Refuse a form that is not of a page of this dashboard, shown to the same token.

    Raises:
        Forbidden: it is not.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    here = site == "same-origin" if site is not None else _is_here(request, origin)
    if not here:
        message = "the form does not belong to a page of this dashboard"
        raise Forbidden(message, hint="programs call the HTTP API, with the header Authorization")
    if not hmac.compare_digest(given.encode(), form_token(request).encode()):
        message = "the form has expired"
        raise Forbidden(message, hint="open it again")


def inside(path: str) -> str:
    """Return a path of the dashboard to go on to; its first page for any other address."""
    plain = path.isprintable() and "\\" not in path and "//" not in path.partition("?")[0]
    return path if plain and (path == BASE or path.startswith((f"{BASE}/", f"{BASE}?"))) else BASE


def _is_here(request: Request, origin: str | None) -> bool:
    try:
        return origin is not None and urlsplit(origin).netloc == request.headers.get("host")
    except ValueError:
        return False


def _set(
    request: Request, response: Response, name: str, value: str, seconds: int | None = None
) -> None:
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=BASE,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
