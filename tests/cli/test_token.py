"""`headway token`: created and printed once, listed without secrets, rotated, revoked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cli.commands.token import _find
from headway.contract.definitions import DefineRequest, NoteUse, Role
from headway.contract.store import Store
from headway.contract.views import (
    StatsQuery,
    StatsView,
    TokensQuery,
    TokenView,
    TrailQuery,
    TrailView,
)
from headway.runtime.tokens import digest, matches, new_token, parse
from tests.cli.conftest import Headway
from tests.cli.seeding import enqueue, new_job, with_store


@pytest.fixture(autouse=True)
def made(headway: Headway) -> None:
    assert headway("migrate").code == 0


def tokens(url: str = "sqlite:///headway.db") -> tuple[TokenView, ...]:
    async def work(store: Store) -> tuple[TokenView, ...]:
        return await store.read(TokensQuery())

    return with_store(work, url)


def now() -> int:
    async def work(store: Store) -> int:
        return (await store.read(StatsQuery())).now

    return with_store(work)


def trail() -> tuple[TrailView, ...]:
    async def work(store: Store) -> tuple[TrailView, ...]:
        return (await store.read(TrailQuery())).rows

    return with_store(work)


def created(headway: Headway, *options: str) -> dict[str, Any]:
    ran = headway("token", "create", "orders", "--role", "producer", *options, "--json")
    assert ran.code == 0, ran.err
    return ran.document


def opens(text: str) -> bool:
    """Return whether a server would accept a token's text."""
    token, secret = parse(text)
    found = [one.spec for one in tokens() if one.spec.id == token]
    return bool(found) and matches(found[0], secret, now())


def test_token_is_printed_alone_and_works(headway: Headway) -> None:
    ran = headway(
        "token", "create", "orders", "--role", "producer", "--role", "viewer",
        "--tenant", "acme", "--lane", "send_*", "--lane", "calls", "--expires", "90d",
    )  # fmt: skip
    assert ran.code == 0
    text = ran.out.removesuffix("\n")
    assert opens(text)
    assert "not shown again" in ran.err
    assert parse(text)[1] not in ran.err
    (token,) = tokens()
    assert (token.spec.name, token.created_by) == ("orders", "the tester")
    assert token.spec.roles == (Role.PRODUCER, Role.VIEWER)
    assert (token.spec.tenants, token.spec.lanes) == (("acme",), ("send_*", "calls"))
    assert token.spec.expires_at is not None
    assert token.spec.expires_at - token.created_at == pytest.approx(90 * 86_400_000, abs=60_000)


def test_token_without_scopes_is_for_everything_and_never_expires(headway: Headway) -> None:
    made = created(headway)
    (token,) = tokens()
    assert (token.spec.tenants, token.spec.lanes, token.spec.expires_at) == (None, None, None)
    assert made == {
        "id": token.spec.id,
        "token": made["token"],
        "expires_at": None,
        "revision": 1,
    }
    assert opens(made["token"])


def test_tokens_are_listed_with_their_last_use_and_without_digests(headway: Headway) -> None:
    made = created(headway, "--tenant", "", "--expires", "2990-01-01T00:00Z")
    (token,) = tokens()

    async def use(store: Store) -> int:
        items = (NoteUse(used=((made["id"], token.created_at + 1),)),)
        return await store.define(DefineRequest(items=items, author="server"))

    with_store(use)
    document = headway("token", "list", "--json")
    (listed,) = document.document["tokens"]
    assert listed == {
        "id": made["id"],
        "name": "orders",
        "roles": ["producer"],
        "tenants": [""],
        "lanes": None,
        "closes": [],
        "expires_at": token.spec.expires_at,
        "created_at": token.created_at,
        "created_by": "the tester",
        "used_at": token.created_at + 1,
        "old_until_at": None,
    }
    for ran in (headway("token"), headway("token", "list")):
        assert ran.out.splitlines()[0].split()[:3] == ["ID", "NAME", "ROLES"]
        assert "2990-01-01" in ran.out
        assert made["id"] in ran.out
    _, secret = parse(made["token"])
    for text in (document.out, headway("token", "list").out, repr(trail())):
        assert secret not in text
        assert digest(secret)[:12] not in text


def test_tokens_are_listed_by_name(headway: Headway) -> None:
    for name in ("b", "c", "a", "b"):
        headway("token", "create", name, "--role", "viewer")
    listed = headway("token", "list", "--json").document["tokens"]
    assert [one["name"] for one in listed] == ["a", "b", "b", "c"]
    assert listed[1]["id"] < listed[2]["id"]


def test_nothing_is_listed_without_a_token(headway: Headway) -> None:
    ran = headway("token", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "headway token create" in ran.err
    assert headway("token", "list", "--json").document == {"tokens": []}


def test_rotated_token_ends_its_old_secret_at_once(headway: Headway) -> None:
    first = created(headway)["token"]
    ran = headway("token", "rotate", parse(first)[0])
    second = ran.out.strip()
    assert "no more" in ran.err
    assert parse(second)[0] == parse(first)[0]
    assert (opens(first), opens(second)) == (False, True)
    assert len(tokens()[0].spec.secrets) == 1


def test_old_secret_is_accepted_during_its_grace_and_not_after_the_next_rotation(
    headway: Headway,
) -> None:
    first = created(headway, "--tenant", "acme")
    (before,) = tokens()
    ran = headway("token", "rotate", first["id"], "--grace", "1h", "--json")
    second = ran.document
    assert (opens(first["token"]), opens(second["token"])) == (True, True)
    (token,) = tokens()
    new, old = token.spec.secrets
    assert (new.until_at, old.until_at) == (None, second["old_until_at"])
    assert second["old_until_at"] - now() == pytest.approx(3_600_000, abs=60_000)
    assert token.spec.tenants == before.spec.tenants
    assert (token.created_at, token.created_by) == (before.created_at, before.created_by)
    assert "old secret until" in headway("token", "list").out
    third = headway("token", "rotate", first["id"]).out.strip()
    told = [opens(text) for text in (first["token"], second["token"], third)]
    assert told == [False, False, True]


def test_rotation_beside_another_is_refused_and_sets_no_secret(
    headway: Headway, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = created(headway)

    async def late(store: Store, name: str) -> tuple[StatsView, TokenView]:
        before, view = await _find(store, name)
        return replace(before, revision=before.revision - 1), view

    monkeypatch.setattr("headway.cli.commands.token._find", late)
    ran = headway("token", "rotate", first["id"])
    assert (ran.code, ran.out) == (2, "")
    assert opens(first["token"])
    assert len(tokens()[0].spec.secrets) == 1


def test_longer_grace_does_not_lengthen_an_earlier_one(headway: Headway) -> None:
    first = created(headway)
    until_at = headway(
        "token", "rotate", first["id"], "--grace", "1h", "--json"
    ).document["old_until_at"]  # fmt: skip
    headway("token", "rotate", first["id"], "--grace", "2d")
    assert tokens()[0].spec.secrets[2].until_at == until_at


def test_revoked_token_opens_nothing_and_is_in_the_trail(headway: Headway) -> None:
    made = created(headway)
    ran = headway("token", "revoke", made["id"], "--reason", "left in a repository")
    assert (ran.code, ran.out) == (0, f"orders ({made['id']}) is revoked\n")
    assert tokens() == ()
    newest = trail()[0]
    assert (newest.verb, newest.target) == ("revoke token", made["id"])
    assert (newest.author, newest.reason) == ("the tester", "left in a repository")


def test_whole_text_of_a_token_can_replace_its_id(headway: Headway) -> None:
    made = created(headway)
    assert headway("token", "revoke", made["token"], "--json").document == {"revision": 2}
    assert tokens() == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["create", "x"], "--role"),
        (["create", "x", "--role", "boss"], "boss"),
        (["create", "", "--role", "viewer"], "token is empty"),
        (["create", "x", "--role", "viewer", "--expires", "soon"], "--expires"),
        (["create", "x", "--role", "viewer", "--expires", "0s"], "not in the future"),
        (["create", "x", "--role", "viewer", "--expires", "2001-01-01T00:00Z"], "not in the"),
        (["create", "x", "--role", "worker", "--tenant", "acme"], "scope a worker's token"),
        (["create", "x", "--role", "viewer", "--lane", ""], "lane is empty"),
        (["rotate", "0123456789abcdef"], "there is no token"),
        (["rotate", "0123456789abcdef", "--grace", "soon"], "the duration 'soon'"),
        (["revoke", "0123456789abcdef"], "there is no token"),
        (["revoke", "orders"], "there is no token 'orders'"),
    ],
)
def test_impossible_change_is_refused_and_nothing_is_written(
    headway: Headway, line: list[str], said: str
) -> None:
    created(headway)
    before = tokens()
    ran = headway("token", *line)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert tokens() == before


def test_error_about_an_unknown_token_shows_no_secret(headway: Headway) -> None:
    text = new_token().text
    for given in (text, f"{text}x", text[:-1]):
        ran = headway("token", "revoke", given)
        assert ran.code == 2
        assert text[3:19] in ran.err
        assert text[20:30] not in ran.err


def test_expired_token_is_marked_and_not_rotated(headway: Headway) -> None:
    made = created(headway, "--expires", "1ms")
    assert headway("token", "list").out.rstrip().endswith("ended")
    ran = headway("token", "rotate", made["id"])
    assert ran.code == 2
    assert "has expired" in ran.err
    assert not opens(made["token"])


def test_export_contains_no_tokens(headway: Headway) -> None:
    made = created(headway)
    enqueue(new_job())
    ran = headway("export")
    assert (ran.code, len(ran.out.splitlines())) == (0, 2)
    _, secret = parse(made["token"])
    for text in (made["id"], secret, digest(secret)):
        assert text not in ran.out


def test_copied_token_opens_the_copy(headway: Headway) -> None:
    made = created(headway)
    ran = headway("copy", "sqlite:///headway.db", "sqlite:///new.db")
    assert ran.code == 0, ran.err
    assert tokens("sqlite:///new.db") == tokens()
    token, secret = parse(made["token"])
    (copied,) = tokens("sqlite:///new.db")
    assert copied.spec.id == token
    assert matches(copied.spec, secret, now())


def test_copy_to_a_store_with_a_token_is_refused(headway: Headway, folder: Path) -> None:
    created(headway)
    headway("migrate", "--store", "sqlite:///new.db")
    headway("token", "create", "new", "--role", "admin", "--store", "sqlite:///new.db")
    ran = headway("copy", "sqlite:///headway.db", "sqlite:///new.db")
    assert ran.code == 2
    assert "not empty" in ran.err
    assert [one.spec.name for one in tokens(f"sqlite:///{folder}/new.db")] == ["new"]
