"""Tokens: their text, `hw_<id>_<secret>`, and the digests that a store keeps instead of it."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field, replace
from hashlib import sha256

from headway.contract.definitions import Role, TokenSecret, TokenSpec
from headway.contract.views import TokenView
from headway.core.errors import InvalidState, Unauthenticated

_TEXT = re.compile(r"hw_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, kw_only=True, slots=True)
class NewToken:
    """A token's text, which is shown once, and what is stored instead of it.

    Attributes:
        text: what the caller sends; not in the repr.
        id: 16 hexadecimal digits; the part of the text that may be shown.
        secret: first item for `TokenSpec.secrets`.
    """

    text: str = field(repr=False)
    id: str
    secret: TokenSecret


def new_token(id: str | None = None) -> NewToken:
    """Create a token with a secret of 32 random bytes.

    Args:
        id: id of an existing token that gets another secret; None for a new token.
    """
    chosen = secrets.token_hex(8) if id is None else id
    secret = secrets.token_urlsafe(32)
    return NewToken(
        text=f"hw_{chosen}_{secret}", id=chosen, secret=TokenSecret(digest=digest(secret))
    )


def parse(text: str) -> tuple[str, str]:
    """Split a token's text into its id and its secret.

    Raises:
        Unauthenticated: the text is not a token; the message contains nothing of it.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        message = "this is not a token"
        raise Unauthenticated(message, hint="send all of it: hw_<id>_<secret>")
    return found[1], found[2]


def digest(secret: str) -> str:
    """Return the SHA-256 of a secret in hex; 256 random bits need no slower hash."""
    return sha256(secret.encode()).hexdigest()


def matches(spec: TokenSpec, secret: str, now: int) -> bool:
    """Return whether a secret is valid for a token now; the time taken does not reveal which fits.

    Args:
        now: current time in ms UTC; a token or secret is accepted until just before it expires.
    """
    given = digest(secret)
    fits = False
    for known in spec.secrets:
        same = hmac.compare_digest(known.digest, given)
        fits |= same and (known.until_at is None or now < known.until_at)
    return fits and (spec.expires_at is None or now < spec.expires_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownToken:
    """A token, as shown in listings.

    Attributes:
        id: 16 hexadecimal digits.
        name: label; the trail shows it as the author of changes made with the token.
        roles: roles, which define what the token may do.
        tenants: tenants that it is limited to; None for any.
        lanes: lanes or patterns that it is limited to; None for any.
        closes: gates, or patterns of gates, that its runs may close.
        expires_at: when it expires; None for never.
        created_at: when it was created.
        created_by: who created it.
        used_at: when it was last used, to the minute; None for never.
        old_until_at: until when a replaced secret is still accepted; None if there is none.
    """

    id: str
    name: str
    roles: tuple[Role, ...]
    tenants: tuple[str, ...] | None
    lanes: tuple[str, ...] | None
    closes: tuple[str, ...]
    expires_at: int | None
    created_at: int
    created_by: str
    used_at: int | None
    old_until_at: int | None


def shown_token(view: TokenView, now: int) -> ShownToken:
    """Return the public fields of a token."""
    spec = view.spec
    old = [one.until_at for one in spec.secrets if one.until_at is not None and one.until_at > now]
    return ShownToken(
        id=spec.id,
        name=spec.name,
        roles=spec.roles,
        tenants=spec.tenants,
        lanes=spec.lanes,
        closes=spec.closes,
        expires_at=spec.expires_at,
        created_at=view.created_at,
        created_by=view.created_by,
        used_at=view.used_at,
        old_until_at=max(old, default=None),
    )


def rotate(spec: TokenSpec, now: int, grace_ms: int) -> tuple[TokenSpec, NewToken]:
    """Replace a token's secret by a new one.

    Args:
        now: current time in ms UTC.
        grace_ms: how long the present secrets stay valid; 0 invalidates them at once.

    Returns:
        The spec to store, with the new secret first and without expired ones, and the new text.

    Raises:
        InvalidState: the token itself has expired.
    """
    if spec.expires_at is not None and spec.expires_at <= now:
        message = f"the token {spec.name!r} has expired"
        raise InvalidState(message, hint="create another one with `headway token create`")
    made = new_token(spec.id)
    end = now + grace_ms
    old = (
        replace(one, until_at=end if one.until_at is None else min(one.until_at, end))
        for one in spec.secrets
    )
    kept = (one for one in old if one.until_at is not None and one.until_at > now)
    return replace(spec, secrets=(made.secret, *kept)), made
