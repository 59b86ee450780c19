"""A rotated token: the new secret first, old ones for as long as configured, and no others."""

from __future__ import annotations

import pytest

from headway.contract.definitions import Role, TokenSecret, TokenSpec
from headway.contract.views import TokenView
from headway.core.errors import InvalidState
from headway.runtime.tokens import parse, rotate, shown_token

NOW = 1_790_000_000_000
SPEC = TokenSpec(
    id="0123456789abcdef",
    name="orders",
    roles=(Role.PRODUCER,),
    secrets=(
        TokenSecret(digest="a" * 64),
        TokenSecret(digest="b" * 64, until_at=NOW + 50),
        TokenSecret(digest="c" * 64, until_at=NOW),
    ),
    expires_at=NOW + 1,
)


def ends(spec: TokenSpec) -> list[tuple[str, int | None]]:
    return [(one.digest[0], one.until_at) for one in spec.secrets[1:]]


def test_old_secrets_keep_the_earlier_of_their_ends_and_expired_ones_are_dropped() -> None:
    spec, made = rotate(SPEC, NOW, 100)
    assert spec.secrets[0] == made.secret
    assert parse(made.text)[0] == spec.id == SPEC.id
    assert ends(spec) == [("a", NOW + 100), ("b", NOW + 50)]
    assert (spec.name, spec.roles, spec.expires_at) == (SPEC.name, SPEC.roles, SPEC.expires_at)


def test_only_the_new_secret_is_left_without_grace() -> None:
    spec, made = rotate(SPEC, NOW, 0)
    assert spec.secrets == (made.secret,)


def test_expired_token_is_not_rotated() -> None:
    with pytest.raises(InvalidState, match="has expired"):
        rotate(SPEC, NOW + 1, 0)


def test_shown_token_has_no_digest_but_the_end_of_an_old_secret() -> None:
    view = TokenView(spec=SPEC, created_at=1, created_by="ann", used_at=2)
    shown = shown_token(view, NOW)
    assert not any(one.digest in repr(shown) for one in SPEC.secrets)
    assert shown.old_until_at == NOW + 50
    assert shown_token(view, NOW + 50).old_until_at is None
    assert (shown.id, shown.created_at, shown.created_by, shown.used_at) == (SPEC.id, 1, "ann", 2)
