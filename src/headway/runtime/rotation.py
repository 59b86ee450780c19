"""Rotation: a token gets another secret, and the old one goes on for as long as is said."""

from __future__ import annotations

from dataclasses import replace

from headway.contract.tokens import TokenSpec
from headway.core.errors import InvalidState
from headway.runtime.token_text import NewToken, new_token


def rotate(spec: TokenSpec, now: int, grace_ms: int) -> tuple[TokenSpec, NewToken]:
    """Draws another secret for a token.

    Args:
        spec: as it is.
        now: the store's time, ms UTC.
        grace_ms: for how long what is accepted now still is; 0 ends it at once.

    Returns:
        The token as it is to be set, the new secret first and those that have ended left out; and
        its new text.

    Raises:
        InvalidState: the token itself has ended.
    """
    if spec.expires_at is not None and spec.expires_at <= now:
        message = f"the token {spec.name!r} has ended"
        raise InvalidState(message, hint="make another one with `headway token create`")
    made = new_token(spec.id)
    end = now + grace_ms
    old = (
        replace(one, until_at=end if one.until_at is None else min(one.until_at, end))
        for one in spec.secrets
    )
    kept = (one for one in old if one.until_at is not None and one.until_at > now)
    return replace(spec, secrets=(made.secret, *kept)), made
