"""A token's text is shown once; its stored form verifies that text and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from headway.contract.definitions import Role, TokenSecret, TokenSpec
from headway.core.errors import Unauthenticated
from headway.runtime.tokens import digest, matches, new_token, parse

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
