"""Tokens are set, revoked, and noted as used; what cannot be one is refused."""

from __future__ import annotations

import re

from headway.contract.definitions import NoteUse
from headway.contract.tokens import Role, TokenSpec
from headway.core.errors import InvalidValue
from headway.core.naming import check_name
from headway.stores.ledger.gaterows import FOREVER
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.tables.tokens import TokenRow

MAX_TOKENS = 10_000
"""Tokens that a store holds at most."""
MAX_WORDS = 500
"""Characters of a token's words on the trail."""

_ID = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_token_id(text: str) -> bool:
    """Whether a token can have this id."""
    return _ID.fullmatch(text) is not None


def check_token(spec: TokenSpec) -> str:
    """Lets a usable token pass.

    Args:
        spec: of the token.

    Returns:
        The words for the trail: its name, roles, scopes and end; nothing of its secrets but how
        many there are.

    Raises:
        InvalidValue: an id, role, secret, scope or moment is missing or unusable.
    """
    _check_shape(spec)
    _check_scope("tenant", spec.tenants)
    _check_scope("lane", spec.lanes)
    for gate in spec.closes:
        check_name("gate", gate)
    if Role.WORKER in spec.roles and spec.tenants is not None:
        message = f"the token {spec.name!r} is a worker's, and is scoped to tenants"
        hint = "a lane may hold jobs of several tenants: scope a worker's token to lanes"
        raise InvalidValue(message, hint=hint)
    return _words(spec)


def _check_shape(spec: TokenSpec) -> None:
    if not is_token_id(spec.id):
        message = f"{spec.id!r:.80} is not the id of a token"
        raise InvalidValue(message, hint="it has 16 digits, 0 to 9 and a to f")
    check_name("token", spec.name)
    if not spec.roles or len(set(spec.roles)) < len(spec.roles):
        message = f"the token {spec.name!r} has no role, or one of them twice"
        raise InvalidValue(message, hint=f"at least one of {', '.join(Role)}")
    if not spec.secrets:
        message = f"the token {spec.name!r} has no secret"
        raise InvalidValue(message, hint="nobody could use it; revoke it instead")
    if not all(_DIGEST.fullmatch(secret.digest) for secret in spec.secrets):
        # The digest is not told: what is no digest may be the secret itself.
        message = f"a secret of the token {spec.name!r} is no digest"
        raise InvalidValue(message, hint="give the SHA-256 of the secret, 64 hexadecimal digits")
    for at in (spec.expires_at, *(secret.until_at for secret in spec.secrets)):
        if at is not None:
            _check_moment(at)


def _check_scope(what: str, names: tuple[str, ...] | None) -> None:
    if names is None:
        return
    if not names:
        message = f"a token that is scoped to no {what} can do nothing"
        raise InvalidValue(message, hint=f"name a {what}, or leave the scope out for any")
    for name in names:
        check_name(what, name, empty=what == "tenant")


def _check_moment(at: int) -> None:
    if not 0 <= at < FOREVER:
        message = f"{at} is not a moment that a token can have"
        raise InvalidValue(message, hint="milliseconds since 1970, before the year 10000")


def _words(spec: TokenSpec) -> str:
    said = [f"{spec.name}: {', '.join(spec.roles)}"]
    if spec.tenants is not None:
        said.append(f"tenants {', '.join(map(repr, spec.tenants))}")
    if spec.lanes is not None:
        said.append(f"lanes {', '.join(map(repr, spec.lanes))}")
    if spec.closes:
        said.append(f"closes {', '.join(map(repr, spec.closes))}")
    if spec.expires_at is not None:
        said.append(f"until {spec.expires_at}")
    said.append(f"{len(spec.secrets)} secret{'s' if len(spec.secrets) > 1 else ''}")
    words = "; ".join(said)
    return words if len(words) <= MAX_WORDS else f"{words[: MAX_WORDS - 1]}…"


def check_uses(item: NoteUse) -> dict[str, int]:
    """When each token was used last; what is no id at all is passed over.

    Raises:
        InvalidValue: a moment is none.
    """
    latest: dict[str, int] = {}
    for token, at in item.used:
        _check_moment(at)
        if is_token_id(token):
            latest[token] = max(at, latest.get(token, 0))
    return latest


def set_token(ledger: Ledger, spec: TokenSpec, author: str) -> bool:
    """Makes or replaces a token; when it was made and used stays. Whether anything changed."""
    row = ledger.tokens.load([spec.id]).get(spec.id)
    if row is None:
        row = TokenRow(spec=spec, created_at=ledger.now, created_by=author)
    elif row.spec == spec:
        return False
    row.spec = spec
    ledger.tokens.save([row])
    return True


def check_number(ledger: Ledger) -> None:
    """Lets a store pass that holds no more tokens than it may.

    Raises:
        InvalidValue: it holds more; the whole definition is undone.
    """
    if ledger.tokens.count() > MAX_TOKENS:
        message = f"there would be more than {MAX_TOKENS} tokens"
        raise InvalidValue(message, hint="revoke some that nobody uses")


def revoke_token(ledger: Ledger, token: str) -> str | None:
    """Forgets a token.

    Returns:
        Its name; None where there is none.
    """
    check_name("token", token)
    row = ledger.tokens.load([token]).get(token) if is_token_id(token) else None
    if row is None:
        return None
    ledger.tokens.remove(token)
    return row.spec.name


def note_use(ledger: Ledger, item: NoteUse) -> None:
    """Notes when tokens were used, where that is later than what was noted."""
    latest = check_uses(item)
    later: list[TokenRow] = []
    for token, row in ledger.tokens.load(latest).items():
        if row.used_at is None or row.used_at < latest[token]:
            row.used_at = latest[token]
            later.append(row)
    ledger.tokens.save(later)
