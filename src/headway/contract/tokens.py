"""Tokens: who may do what over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a token is for."""

    VIEWER = "viewer"
    PRODUCER = "producer"
    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSecret:
    """The proof that a caller has the token.

    Attributes:
        digest: SHA-256 of the secret, in hex; the secret itself is stored nowhere.
        until_at: until when it is accepted; None for as long as the token.
    """

    digest: str
    until_at: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSpec:
    """A token.

    Attributes:
        id: 16 hexadecimal digits, part of the token's text.
        name: a label; the trail shows it as the author of what is done with it.
        roles: at least one.
        tenants: only these; None for any.
        lanes: only these, or those that fit a pattern such as `send_*`; None for any.
        closes: gates that its runs may close, by resolved name or by a pattern such as `rate:*`,
            besides those that its roles let it close.
        secrets: the newest first; an older one is accepted until its end.
        expires_at: when it ends; None for never.
    """

    id: str
    name: str
    roles: tuple[Role, ...]
    secrets: tuple[TokenSecret, ...]
    tenants: tuple[str, ...] | None = None
    lanes: tuple[str, ...] | None = None
    closes: tuple[str, ...] = ()
    expires_at: int | None = None
