"""A token's text is shown once; its stored form verifies that text and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from headway.contract.definitions import Role, TokenSecret, TokenSpec
from headway.contract.views import TokenView
from headway.core.errors import InvalidState, Unauthenticated
from headway.runtime.tokens import digest, matches, new_token, parse, rotate, shown_token

NOW = 1_790_000_000_000


def _spec(*secrets: TokenSecret, expires_at: int | None = None) -> TokenSpec:
    return TokenSpec(
        id="0123456789abcdef",
        name="orders",
        roles=(Role.PRODUCER,),
        secrets=secrets,
        expires_at=expires_at,
    )


def test_new_token_verifies_against_its_stored_digest() -> None:
    made = new_token()
    id, secret = parse(made.text)

    assert id == made.id
    assert made.secret.digest == digest(secret)
    assert matches(_spec(made.secret), secret, NOW)


def test_no_two_tokens_are_equal() -> None:
    made = [new_token() for _ in range(100)]

    assert len({one.id for one in made}) == 100
    assert len({one.secret.digest for one in made}) == 100


def test_text_has_the_documented_form() -> None:
    assert re.fullmatch(r"hw_[0-9a-f]{16}_[A-Za-z0-9_-]{43}", new_token().text)


def test_rotated_token_keeps_its_id() -> None:
    assert new_token("0123456789abcdef").text.startswith("hw_0123456789abcdef_")


def test_repr_of_a_new_token_shows_no_secret() -> None:
    made = new_token()

    assert parse(made.text)[1] not in repr(made)


def test_another_secret_is_refused() -> None:
    made = new_token()
    _, other = parse(new_token().text)

    assert not matches(_spec(made.secret), other, NOW)


def test_older_secret_is_valid_until_just_before_its_end() -> None:
    old, new = new_token(), new_token()
    spec = _spec(new.secret, replace(old.secret, until_at=NOW))
    _, secret = parse(old.text)

    assert matches(spec, secret, NOW - 1)
    assert not matches(spec, secret, NOW)
    assert matches(spec, parse(new.text)[1], NOW)


def test_token_is_valid_until_just_before_its_end() -> None:
    made = new_token()
    spec = _spec(made.secret, expires_at=NOW)
    _, secret = parse(made.text)

    assert matches(spec, secret, NOW - 1)
    assert not matches(spec, secret, NOW)


def test_rotation_extends_no_replaced_secret_and_drops_the_expired_ones() -> None:
    ends = {"current": None, "soon": NOW + 1, "late": NOW + 9_000, "just expired": NOW}
    secrets = {name: replace(new_token().secret, until_at=at) for name, at in ends.items()}
    spec, made = rotate(_spec(*secrets.values()), NOW, 5_000)

    kept = {"current": NOW + 5_000, "soon": NOW + 1, "late": NOW + 5_000}
    old = tuple(replace(secrets[name], until_at=at) for name, at in kept.items())
    assert spec.secrets == (made.secret, *old)


def test_rotation_without_grace_leaves_the_new_secret_alone() -> None:
    spec, made = rotate(_spec(new_token().secret), NOW, 0)

    assert spec.secrets == (made.secret,)


def test_token_is_rotated_until_just_before_its_end() -> None:
    spec = _spec(new_token().secret, expires_at=NOW)

    assert rotate(spec, NOW - 1, 0)[0].expires_at == NOW
    with pytest.raises(InvalidState, match="has expired"):
        rotate(spec, NOW, 0)


@pytest.mark.parametrize(("until_at", "shown"), [(NOW, None), (NOW + 1, NOW + 1)])
def test_replaced_secret_is_shown_while_it_is_accepted(until_at: int, shown: int | None) -> None:
    old = replace(new_token().secret, until_at=until_at)
    view = TokenView(
        spec=_spec(new_token().secret, old), created_at=0, created_by="ann", used_at=None
    )

    assert shown_token(view, NOW).old_until_at == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hw_",
        "hw_0123456789abcdef",
        "hw_0123456789abcdef_short",
        "hw_0123456789ABCDEF_" + "a" * 43,
        "hw_0123456789abcdef_" + "a" * 44,
        "hw_0123456789abcdef_" + "a" * 43 + "\n",
        "hw_0123456789abcdef_" + "é" * 43,
        "Bearer hw_0123456789abcdef_" + "a" * 43,
    ],
)
def test_malformed_token_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        parse(text)

    assert "0123456789" not in str(refused.value)
