"""The text of a token, and what a store may know of it: `hw_<id>_<secret>`."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field
from hashlib import sha256

from headway.contract.tokens import TokenSecret, TokenSpec
from headway.core.errors import Unauthenticated

_TEXT = re.compile(r"hw_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, kw_only=True, slots=True)
class NewToken:
    """A token's text, which is told once, and what is kept of it.

    Attributes:
        text: what its holder sends; not in the repr.
        id: 16 hexadecimal digits, the part of the text that may be shown.
        secret: for the first place of `TokenSpec.secrets`.
    """

    text: str = field(repr=False)
    id: str
    secret: TokenSecret


def new_token(id: str | None = None) -> NewToken:  # noqa: A002  (the record's word for it)
    """Draws a secret of 32 random bytes.

    Args:
        id: of the token that gets another secret; None draws a new id.
    """
    chosen = secrets.token_hex(8) if id is None else id
    secret = secrets.token_urlsafe(32)
    return NewToken(
        text=f"hw_{chosen}_{secret}", id=chosen, secret=TokenSecret(digest=digest(secret))
    )


def parse(text: str) -> tuple[str, str]:
    """The id and the secret of a token's text.

    Raises:
        Unauthenticated: it is no token; the message holds nothing of the text.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        message = "this is not the text of a token"
        raise Unauthenticated(message, hint="send it whole: hw_, the id, _, the secret")
    return found[1], found[2]


def digest(secret: str) -> str:
    """What is stored of a secret: its SHA-256, in hex; 256 random bits need no slower hash."""
    return sha256(secret.encode()).hexdigest()


def matches(spec: TokenSpec, secret: str, now: int) -> bool:
    """Whether a secret opens a token now, in a time that does not depend on which one does.

    Args:
        spec: of the token.
        secret: as `parse` gives it.
        now: the moment, ms UTC; a token or secret is accepted until just before its end.
    """
    said = digest(secret)
    fits = False
    for known in spec.secrets:
        same = hmac.compare_digest(known.digest, said)
        fits |= same and (known.until_at is None or now < known.until_at)
    return fits and (spec.expires_at is None or now < spec.expires_at)
