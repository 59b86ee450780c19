from __future__ import annotations

import pytest

from headway.core.errors import InvalidValue
from headway.stores.redis.options import Address, Login, Tls, parse_url

WORD = "s@id"
OTHER = "aloud"


def test_url_names_server_account_database_and_namespace() -> None:
    found = parse_url("redis://ann:s%40id@db.example:6380/3?namespace=calls")
    assert found.addresses == (Address(host="db.example", port=6380),)
    assert found.account == Login(username="ann", password=WORD)
    assert (found.database, found.namespace, found.tls) == (3, "calls", None)


def test_bare_url_is_the_local_server() -> None:
    found = parse_url("redis://")
    assert found.addresses == (Address(host="localhost", port=6379),)
    assert (found.database, found.namespace) == (0, "main")
    assert found.account == Login()


def test_password_alone_needs_no_name() -> None:
    assert parse_url("redis://:aloud@h").account == Login(password=OTHER)


def test_ipv6_address_is_in_brackets() -> None:
    assert parse_url("redis://[::1]:7000").addresses == (Address(host="::1", port=7000),)
    assert str(parse_url("redis://[::1]:7000").addresses[0]) == "[::1]:7000"


def test_rediss_checks_the_certificate_with_the_given_files() -> None:
    found = parse_url("rediss://h?tls_ca=/ca.pem&tls_cert=/c.pem&tls_key=/k.pem")
    assert found.tls == Tls(ca="/ca.pem", cert="/c.pem", key="/k.pem")


def test_unix_url_is_the_path_of_a_socket() -> None:
    found = parse_url("unix:///run/redis/redis.sock?db=2")
    assert found.addresses == (Address(path="/run/redis/redis.sock"),)
    assert found.database == 2


def test_sentinels_are_named_with_their_service() -> None:
    found = parse_url("redis+sentinel://:s%40id@a,b:26380/calls/1?sentinel_password=aloud")
    assert found.addresses == (Address(host="a", port=26379), Address(host="b", port=26380))
    assert (found.service, found.database) == ("calls", 1)
    assert found.account.password == WORD
    assert found.sentinel_account.password == OTHER


def test_cluster_is_named_by_some_nodes() -> None:
    found = parse_url("redis+cluster://a:7000,b:7001?namespace=n")
    assert found.cluster
    assert found.addresses == (Address(host="a", port=7000), Address(host="b", port=7001))


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://h:port",
        "redis://h:0",
        "redis://h:70000",
        "redis://h..example",
        "redis+cluster://h,\udcff",
        "redis://h/x",
        "redis://h/1/2",
        "redis://a,b",
        "redis://[::1",
        "redis://h?names=x",
        "redis://h?namespace=",
        "redis://h?namespace={x}",
        "redis://h?namespace=a%20b",
        "redis://h?timeout_ms=0",
        "redis://h?patience_ms=-1",
        "rediss://h?tls_key=/k.pem",
        "unix://relative.sock",
        "redis+sentinel://h:1",
        "redis+cluster://h/1",
    ],
)
def test_invalid_url_is_refused_with_a_hint(url: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_url(url)
    assert caught.value.hint


def test_password_is_never_shown() -> None:
    options = parse_url("redis://ann:hunter2@h?namespace=n&sentinel_password=hunter2")
    assert "hunter2" not in repr(options)
    assert "hunter2" not in str(options)
    with pytest.raises(InvalidValue) as caught:
        parse_url("redis://ann:hunter2@h/x")
    assert "hunter2" not in str(caught.value)
