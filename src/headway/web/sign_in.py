"""Sign-in: the browser keeps a token of the server in a cookie that only the dashboard reads.

The cookie contains the token itself, so it is valid after a restart and for every server of the
store, and ends with the token. Scripts cannot read it, other sites cannot make a browser send it,
and it is not sent to routes outside `/ui`.
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
"""Name of the cookie with a message that the next page shows once."""
SAID_S = 30
MOST_SAID = 300
"""Maximum length of the message, in characters; browsers refuse a cookie of more than 4 KB."""

_HERE = secrets.token_bytes(32)
"""Key for forms without a token. Other processes refuse such a form, and it must be reopened."""


def token_of(request: Request) -> str | None:
    """Return the token that the browser keeps; None without one."""
    return request.cookies.get(COOKIE) or None


def authorization(request: Request) -> str | None:
    """Return the token as an Authorization header; None without one."""
    token = token_of(request)
    return None if token is None else f"Bearer {token}"


def keep_token(request: Request, response: Response, token: str) -> None:
    """Store a token in the browser until it is closed."""
    _set(request, response, COOKIE, token)


def forget_token(request: Request, response: Response) -> None:
    """Delete the token from the browser."""
    _set(request, response, COOKIE, "", seconds=0)


def leave_message(request: Request, response: Response, message: str) -> None:
    """Leave a message for the next page to show."""
    _set(request, response, SAID, quote(message[:MOST_SAID]), seconds=SAID_S)


def clear_message(request: Request, response: Response) -> None:
    """Delete a message that was shown."""
    if SAID in request.cookies:
        _set(request, response, SAID, "", seconds=0)


def message_of(request: Request) -> str:
    """Return the message that the last form left; "" without one."""
    return unquote(request.cookies.get(SAID, ""))[:MOST_SAID]


def form_token(request: Request) -> str:
    """Return the token against request forgery that a form must send back."""
    token = token_of(request)
    key = _HERE if token is None else hashlib.sha256(token.encode()).digest()
    return hmac.new(key, b"headway dashboard form", hashlib.sha256).hexdigest()


def check_form(request: Request, given: str) -> None:
    """Check that a form comes from a page of this dashboard that was shown to the same token.

    Raises:
        Forbidden: it does not.
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
    """Return a path to redirect to if it is within the dashboard, else the first page."""
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
