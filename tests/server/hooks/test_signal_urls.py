"""Pre-signed signal URLs: created by workers, verified by the server."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidValue
from headway.runtime.signals import LIVES_MS, SignalUrls, find_fault, read_signing_keys
from tests.server.hooks.byte_flips import flipped

NOW = 1_795_000_000_000
DAY_MS = 86_400_000
NEW, OLD = "n" * 32, "o" * 40
URLS = SignalUrls(base="https://hw.example.org/", keys=(NEW, OLD))


def parts(url: str) -> tuple[str, str, str]:
    """Return the key, expiry and signature of a URL."""
    split = urlsplit(url)
    query = parse_qs(split.query, strict_parsing=True)
    key = unquote(split.path.removeprefix("/v1/signals/"))
    return key, query["expires"][0], query["signature"][0]


def good(key: str, expires: str, signature: str, *, now: int = NOW, keys: tuple[str, ...]) -> bool:
    return find_fault(keys, key, expires=expires, signature=signature, now=now) is None


def test_url_without_a_key_is_the_plain_one() -> None:
    plain = SignalUrls(base="http://127.0.0.1:8080/").url("a:1", NOW)
    assert plain == "http://127.0.0.1:8080/v1/signals/a%3A1"


def test_newest_key_signs_and_every_key_verifies() -> None:
    told = parts(URLS.url("a:1", NOW))
    assert good(*told, keys=(NEW,))
    assert not good(*told, keys=(OLD,))
    older = parts(SignalUrls(base="https://x", keys=(OLD,)).url("a:1", NOW))
    assert good(*older, keys=(NEW, OLD))
    assert not good(*older, keys=())


def test_url_is_valid_for_at_least_thirty_days_and_not_from_its_end_on() -> None:
    key, expires, signature = parts(URLS.url("a:1", NOW))
    end = int(expires)
    assert NOW + LIVES_MS <= end < NOW + LIVES_MS + DAY_MS
    assert good(key, expires, signature, now=end - 1, keys=(NEW,))
    assert not good(key, expires, signature, now=end, keys=(NEW,))


def test_url_stays_the_same_for_the_day() -> None:
    midnight = NOW - NOW % DAY_MS
    assert URLS.url("a:1", midnight + 1) == URLS.url("a:1", midnight + DAY_MS)
    assert URLS.url("a:1", midnight) != URLS.url("a:1", midnight + 1)


def test_url_is_valid_for_one_key_until_one_time() -> None:
    key, expires, signature = parts(URLS.url("a:1", NOW))
    assert not good("a:2", expires, signature, keys=(NEW,))
    assert not good("a:", f"1{expires}", signature, keys=(NEW,))
    assert not good(key, str(int(expires) + 1), signature, keys=(NEW,))
    assert not good(key, f"0{expires}", signature, keys=(NEW,))
    assert not good(f"{expires}\n{key}", "", signature, keys=(NEW,))


def test_flipping_any_byte_of_the_signature_refuses() -> None:
    key, expires, signature = parts(URLS.url("a:1", NOW))
    others = [one.decode("latin-1") for one in flipped(signature.encode())]
    assert [
        one for one in (*others, "", signature + "=", "é") if good(key, expires, one, keys=(NEW,))
    ] == []


@pytest.mark.parametrize("expires", ["", "-1", "1e30", "\u0661", "9" * 30, "soon"])
def test_expiry_that_is_not_a_number_refuses(expires: str) -> None:
    assert not good("a:1", expires, "A" * 43, keys=(NEW,))


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60))
def test_every_key_survives_its_url_unchanged(key: str) -> None:
    told = parts(URLS.url(key, NOW))
    assert told[0] == key
    assert good(*told, keys=(NEW,))


def test_several_keys_are_read_from_one_text_newest_first() -> None:
    assert read_signing_keys(f" {NEW}, {OLD} ,") == (NEW, OLD)
    assert read_signing_keys([NEW, OLD]) == (NEW, OLD)
    assert read_signing_keys(None) == read_signing_keys("") == ()


def test_too_short_key_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidValue, match="signing key 2 is shorter") as caught:
        read_signing_keys(f"{NEW},hunter2")
    assert "hunter2" not in str(caught.value)


def test_keys_are_in_no_repr() -> None:
    assert NEW not in repr(URLS)
