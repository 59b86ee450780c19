from __future__ import annotations

import re
from dataclasses import fields

import pytest
from psycopg.conninfo import conninfo_to_dict

from headway.core.errors import InvalidValue
from headway.stores.postgres.options import PostgresOptions, parse_url
from tests.docs.pages import ROOT


def test_plain_url_has_the_defaults():
    options = parse_url("postgresql://ann:secret@db.example:6543/shop")
    assert options == PostgresOptions(conninfo=options.conninfo)
    assert conninfo_to_dict(options.conninfo) == {
        "host": "db.example",
        "port": "6543",
        "user": "ann",
        "password": "secret",
        "dbname": "shop",
    }


def test_own_options_are_read_and_others_are_those_of_libpq():
    options = parse_url(
        "postgres:///shop?namespace=blue&listen=off&migrate=off&pooled=on&patience_ms=2500"
        "&host=/run/postgresql&sslmode=disable&application_name=a%20b+c"
    )
    assert (options.namespace, options.patience_ms) == ("blue", 2500)
    assert (options.listen, options.migrate, options.pooled) == (False, False, True)
    given = conninfo_to_dict(options.conninfo)
    assert given["host"] == "/run/postgresql"
    assert given["application_name"] == "a b+c"


def test_host_that_is_a_long_folder_of_sockets_is_accepted():
    folder = "/run/" + 30 * "postgresql/"
    options = parse_url(f"postgresql:///shop?host={folder},@{'a' * 70}")
    assert conninfo_to_dict(options.conninfo)["host"] == f"{folder},@{'a' * 70}"


def test_several_hosts_are_accepted():
    options = parse_url("postgresql://a:1,b:2/shop?target_session_attrs=read-write")
    given = conninfo_to_dict(options.conninfo)
    assert (given["host"], given["port"]) == ("a,b", "1,2")


def test_password_is_never_shown():
    options = parse_url("postgresql://ann:s3cr%40t@db/shop?listen=off")
    assert conninfo_to_dict(options.conninfo).get("password") == "@".join(("s3cr", "t"))
    assert "s3cr" not in repr(options)
    assert options.place == "db/shop, namespace 'headway'"


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("postgresql+psycopg://ann:s3cret@db/x", "is not the URL"),
        ("mysql://ann:s3cret@db/x", "is not the URL"),
        ("postgresql:db", "is not the URL"),
        ("postgresql://ann:s3cret@db/x?pol=3", "'pol'"),
        ("postgresql://ann:s3%cret@db/x", "cannot be read"),
        ("postgresql://ann:s3cret@[db/x", "cannot be read"),
        ("postgresql://ann:s3cret@a,db..example/x", "cannot be read"),
        ("postgresql://ann:s3cret@%ff/x", "cannot be read"),
        ("postgresql://ann:s3cret@db/x?pool=4", "'pool'"),
        ("postgresql://ann:s3cret@db/x?patience_ms=-1", "patience_ms is '-1'"),
        ("postgresql://ann:s3cret@db/x?listen=maybe", "listen is 'maybe'"),
        ("postgresql://ann:s3cret@db/x?namespace=", "namespace is ''"),
        ("postgresql://ann:s3cret@db/x?namespace=pg_mine", "namespace is 'pg_mine'"),
        ("postgresql://ann:s3cret@db/x?namespace=a%22b", "namespace is"),
        (f"postgresql://ann:s3cret@db/x?namespace={'n' * 49}", "namespace is"),
    ],
)
def test_unusable_url_is_refused_clearly_without_the_password(url: str, part: str):
    with pytest.raises(InvalidValue) as refused:
        parse_url(url)
    assert part in refused.value.message
    assert refused.value.hint
    assert "cret" not in str(refused.value)


def test_page_names_every_option_with_its_default():
    text = (ROOT / "docs" / "how-to" / "postgresql.md").read_text(encoding="utf-8")
    section = text.partition("## The URL")[2].partition("\n## ")[0]
    said = dict(re.findall(r"^\| `(\w+)` \| `?(\w+)`? \|", section, re.MULTILINE))
    known = {field.name: field.default for field in fields(PostgresOptions)}
    del known["conninfo"]
    words = {True: "on", False: "off"}
    assert said == {name: words.get(value, str(value)) for name, value in known.items()}
