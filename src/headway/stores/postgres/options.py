"""Options of a PostgreSQL store, and the URL that has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headway.core.errors import InvalidValue

DEFAULT_NAMESPACE = "headway"
DEFAULT_PATIENCE = 10_000

OWN = ("namespace", "listen", "migrate", "pooled", "patience_ms")
"""The options of a URL that are not libpq's."""
_SCHEMES = ("postgresql", "postgres")
_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,47}")
_HINT = "postgresql://user:password@host:5432/database?namespace=headway"


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresOptions:
    """Options of a store.

    Attributes:
        conninfo: for libpq; may hold a password, so it is never shown.
        namespace: the schema that holds all tables of this store.
        listen: whether it listens for other processes' wake-ups; else it polls for them.
        migrate: whether a missing or older schema is brought up to date when the store is opened.
        pooled: whether a pooler gives each transaction any of its connections, so that nothing
            may be kept on one of them.
        patience_ms: how long an operation waits for others before it is refused.
    """

    conninfo: str = field(repr=False)
    namespace: str = DEFAULT_NAMESPACE
    listen: bool = True
    migrate: bool = True
    pooled: bool = False
    patience_ms: int = DEFAULT_PATIENCE

    @property
    def place(self) -> str:
        """Where it is, for messages; without the password."""
        given = conninfo_to_dict(self.conninfo)
        host = given.get("host") or given.get("hostaddr") or "localhost"
        port = given.get("port")
        database = given.get("dbname") or given.get("user") or ""
        where = f"{host}:{port}" if port else str(host)
        return f"{where}/{database}, namespace {self.namespace!r}"


def parse_url(url: str) -> PostgresOptions:
    """Read a `postgresql:` URL.

    Args:
        url: such as `postgresql://user@host/database?namespace=headway`. Options that are not
            Headway's own are libpq's: several hosts, `sslmode`, `connect_timeout`,
            `target_session_attrs`; what is left out comes from libpq's variables (PGHOST,
            PGPASSWORD, PGSERVICE) and files.

    Raises:
        InvalidValue: it is not such a URL, or has an unknown option.
    """
    scheme, mark, rest = url.partition("://")
    if scheme not in _SCHEMES or not mark:
        message = f"{_shown(url)!r} is not the URL of a PostgreSQL store"
        raise InvalidValue(message, hint=_HINT)
    place, _, query = rest.partition("?")
    # In libpq's URLs a plus is a plus.
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    given = {name: value for name, value in pairs if name in OWN}
    libpq = [(name, value) for name, value in pairs if name not in OWN]
    return PostgresOptions(
        conninfo=_conninfo(place, libpq),
        namespace=check_namespace(given.get("namespace", DEFAULT_NAMESPACE)),
        listen=_switch(given, "listen", default=True),
        migrate=_switch(given, "migrate", default=True),
        pooled=_switch(given, "pooled", default=False),
        patience_ms=_whole(given, "patience_ms", DEFAULT_PATIENCE, least=1, most=10**9),
    )


def check_namespace(name: str) -> str:
    """Validate the name of a store's schema, and return it.

    Raises:
        InvalidValue: it is not a valid name.
    """
    if not _NAMESPACE.fullmatch(name) or name.startswith("pg_") or name == "information_schema":
        message = f"the namespace is {name!r:.80}"
        hint = "1 to 48 ASCII letters, digits, _ or -, a letter first; none of PostgreSQL's own"
        raise InvalidValue(message, hint=hint)
    return name


def _conninfo(place: str, libpq: list[tuple[str, str]]) -> str:
    query = f"?{urlencode(libpq, quote_via=quote)}" if libpq else ""
    try:
        return make_conninfo("", **conninfo_to_dict(f"postgresql://{place}{query}"))
    except ProgrammingError as error:
        # libpq's text names the option, or the part that it cannot read; the password is in the
        # part before the host, which is not repeated.
        known = re.search(r'invalid URI query parameter: "([^"]*)"', str(error))
        what = f"has the unknown option {known[1]!r}" if known else "cannot be read"
        message = f"the store URL {what}"
        own = ", ".join(OWN)
        hint = f"{own}, and those of libpq; write %25 for %, %40 for @, %2F for / in a password"
        raise InvalidValue(message, hint=hint) from None


def _shown(url: str) -> str:
    """Return a URL without the part before its host, which may have a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://…@{tail}" if at else url


def _switch(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = given.get(name)
    if value is None:
        return default
    if value.lower() in {"on", "off"}:
        return value.lower() == "on"
    message = f"{name} is {value!r:.80}"
    raise InvalidValue(message, hint="on or off")


def _whole(given: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    if value.isascii() and value.isdigit() and len(value) < 12 and least <= int(value) <= most:
        return int(value)
    message = f"{name} is {value!r:.80}"
    raise InvalidValue(message, hint=f"a whole number from {least} to {most}")
