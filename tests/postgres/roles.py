"""Server roles that a test creates and drops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from psycopg import sql


@contextmanager
def fresh_role(url: str) -> Iterator[str]:
    """Create a role that may only log in, and yield its name. Its grants are dropped with it."""
    name = f"r{uuid4().hex[:12]}"
    role = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'p4ss'").format(role))
    try:
        yield name
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP OWNED BY {}").format(role))
            admin.execute(sql.SQL("DROP ROLE {}").format(role))


def as_role(url: str, name: str) -> str:
    """Return the URL for another role."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{name}:p4ss@{place}"))
