"""Set, revoke and validate tokens, and record their use."""

from __future__ import annotations

import re

from headway.contract.definitions import NoteUse, Role, TokenSpec
from headway.core.errors import InvalidValue
from headway.core.naming import check_name
from headway.stores.ledger.gaterows import FOREVER
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.tables import TokenRow

MAX_TOKENS = 10_000
"""Most tokens in a store."""
MAX_SUMMARY = 500
"""Most characters of a token's summary on the trail."""

_ID = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_token_id(text: str) -> bool:
    """Return whether a text has the form of a token's id."""
    return _ID.fullmatch(text) is not None


def check_token(spec: TokenSpec) -> str:
    """Validate a token.

    Returns:
        A summary for the trail: name, roles, scopes, expiry, and number of secrets.

    Raises:
        InvalidValue: an id, role, secret, scope or time is missing or invalid.
    """
    _check_shape(spec)
    _check_scope("tenant", spec.tenants)
    _check_scope("lane", spec.lanes)
    for gate in spec.closes:
        check_name("gate", gate)
    if Role.WORKER in spec.roles and spec.tenants is not None:
        message = f"the token {spec.name!r} has the role worker and is scoped to tenants"
        hint = "a lane may contain jobs of several tenants: scope a worker's token to lanes"
        raise InvalidValue(message, hint=hint)
    return _summary(spec)


def _check_shape(spec: TokenSpec) -> None:
    if not is_token_id(spec.id):
        message = f"{spec.id!r:.80} is not the id of a token"
        raise InvalidValue(message, hint="an id has 16 hexadecimal digits, 0 to 9 and a to f")
    check_name("token", spec.name)
    if not spec.roles or len(set(spec.roles)) < len(spec.roles):
        message = f"the token {spec.name!r} has no role, or the same role twice"
        raise InvalidValue(message, hint=f"at least one of {', '.join(Role)}")
    if not spec.secrets:
        message = f"the token {spec.name!r} has no secret"
        raise InvalidValue(message, hint="it would be unusable; revoke it instead")
    if not all(_DIGEST.fullmatch(secret.digest) for secret in spec.secrets):
        # The value is not shown: it may be the secret itself.
        message = f"a secret of the token {spec.name!r} is not a digest"
        raise InvalidValue(message, hint="pass the SHA-256 of the secret, 64 hexadecimal digits")
    for at in (spec.expires_at, *(secret.until_at for secret in spec.secrets)):
        if at is not None:
            _check_moment(at)


def _check_scope(what: str, names: tuple[str, ...] | None) -> None:
    if names is None:
        return
    if not names:
        message = f"a token that is scoped to no {what} can do nothing"
        raise InvalidValue(message, hint=f"name a {what}, or omit the scope to allow any")
    for name in names:
        check_name(what, name, empty=what == "tenant")


def _check_moment(at: int) -> None:
    if not 0 <= at < FOREVER:
        message = f"{at} is not a valid expiry of a token"
        raise InvalidValue(message, hint="use milliseconds since 1970, before the year 10000")


def _summary(spec: TokenSpec) -> str:
    parts = [f"{spec.name}: {', '.join(spec.roles)}"]
    if spec.tenants is not None:
        parts.append(f"tenants {', '.join(map(repr, spec.tenants))}")
    if spec.lanes is not None:
        parts.append(f"lanes {', '.join(map(repr, spec.lanes))}")
    if spec.closes:
        parts.append(f"closes {', '.join(map(repr, spec.closes))}")
    if spec.expires_at is not None:
        parts.append(f"until {spec.expires_at}")
    parts.append(f"{len(spec.secrets)} secret{'s' if len(spec.secrets) > 1 else ''}")
    text = "; ".join(parts)
    return text if len(text) <= MAX_SUMMARY else f"{text[: MAX_SUMMARY - 1]}…"


def check_uses(item: NoteUse) -> dict[str, int]:
    """Return when each token was last used; invalid ids are ignored.

    Raises:
        InvalidValue: a time is out of range.
    """
    latest: dict[str, int] = {}
    for token, at in item.used:
        _check_moment(at)
        if is_token_id(token):
            latest[token] = max(at, latest.get(token, 0))
    return latest


def set_token(ledger: Ledger, spec: TokenSpec, author: str) -> bool:
    """Create or replace a token, and return whether anything changed.

    A replaced token keeps the times of its creation and last use.
    """
    row = ledger.tokens.load([spec.id]).get(spec.id)
    if row is None:
        row = TokenRow(spec=spec, created_at=ledger.now, created_by=author)
    elif row.spec == spec:
        return False
    row.spec = spec
    ledger.tokens.save([row])
    return True


def check_number(ledger: Ledger) -> None:
    """Check the number of tokens in the store.

    Raises:
        InvalidValue: there are more than MAX_TOKENS; the step must be rolled back.
    """
    if ledger.tokens.count() > MAX_TOKENS:
        message = f"there would be more than {MAX_TOKENS} tokens"
        raise InvalidValue(message, hint="revoke tokens that are not used")


def revoke_token(ledger: Ledger, token: str) -> str | None:
    """Remove a token, and return its name; None if there is no such token."""
    row = ledger.tokens.load([token]).get(token) if is_token_id(token) else None
    if row is None:
        return None
    ledger.tokens.remove(token)
    return row.spec.name


def note_use(ledger: Ledger, item: NoteUse) -> None:
    """Record when tokens were used, if later than what is recorded."""
    latest = check_uses(item)
    later: list[TokenRow] = []
    for token, row in ledger.tokens.load(latest).items():
        if row.used_at is None or row.used_at < latest[token]:
            row.used_at = latest[token]
            later.append(row)
    ledger.tokens.save(later)
