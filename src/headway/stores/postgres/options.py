"""Options of a PostgreSQL store, and the URL that contains them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headway.core.errors import InvalidValue
from headway.core.naming import check_host, read_whole

DEFAULT_NAMESPACE = "headway"
DEFAULT_PATIENCE = 10_000

OWN = ("namespace", "listen", "migrate", "pooled", "patience_ms")
"""Headway's own options in a URL; the others are libpq's."""
_SCHEMES = ("postgresql", "postgres")
_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,47}")
_HINT = "postgresql://user:password@host:5432/database?namespace=headway"


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresOptions:
    """Options of a store.

    Attributes:
        conninfo: for libpq; may contain a password, so it is never shown.
        namespace: schema that contains all tables of this store.
        listen: whether to listen for other processes' wake-ups instead of polling.
        migrate: whether to create or migrate the schema when the store is opened.
        pooled: whether a pooler may use any of its connections for each transaction, so that no
            session state can be kept.
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
        """Return the store's location for messages, without the password."""
        given = conninfo_to_dict(self.conninfo)
        host = given.get("host") or given.get("hostaddr") or "localhost"
        port = given.get("port")
        database = given.get("dbname") or given.get("user") or ""
        where = f"{host}:{port}" if port else str(host)
        return f"{where}/{database}, namespace {self.namespace!r}"


def parse_url(url: str) -> PostgresOptions:
    """Parse a `postgresql:` URL.

    Args:
        url: such as `postgresql://user@host/database?namespace=headway`. Options that are not
            Headway's own are libpq's: several hosts, `sslmode`, `connect_timeout`,
            `target_session_attrs`. Omitted options come from libpq's variables (PGHOST, PGPASSWORD,
            PGSERVICE) and files.

    Raises:
        InvalidValue: the URL is not valid, or has an unknown option.
    """
    scheme, mark, rest = url.partition("://")
    if scheme not in _SCHEMES or not mark:
        message = f"{_shown(url)!r} is not the URL of a PostgreSQL store"
        raise InvalidValue(message, hint=_HINT)
    place, _, query = rest.partition("?")
    # In libpq's URLs a plus sign is literal.
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    given = {name: value for name, value in pairs if name in OWN}
    libpq = [(name, value) for name, value in pairs if name not in OWN]
    return PostgresOptions(
        conninfo=_conninfo(place, libpq),
        namespace=check_namespace(given.get("namespace", DEFAULT_NAMESPACE)),
        listen=_switch(given, "listen", default=True),
        migrate=_switch(given, "migrate", default=True),
        pooled=_switch(given, "pooled", default=False),
        patience_ms=read_whole(
            "patience_ms", given.get("patience_ms", str(DEFAULT_PATIENCE)), least=1
        ),
    )


def check_namespace(name: str) -> str:
    """Validate the name of a store's schema, and return it.

    Raises:
        InvalidValue: the name is not valid.
    """
    if not _NAMESPACE.fullmatch(name) or name.startswith("pg_") or name == "information_schema":
        message = f"the namespace is {name!r:.80}"
        hint = "1 to 48 ASCII letters, digits, _ or -, a letter first; none of PostgreSQL's own"
        raise InvalidValue(message, hint=hint)
    return name


def _conninfo(place: str, libpq: list[tuple[str, str]]) -> str:
    query = f"?{urlencode(libpq, quote_via=quote)}" if libpq else ""
    try:
        given = conninfo_to_dict(f"postgresql://{place}{query}")
        for host in str(given.get("host") or "").split(","):
            if not host.startswith(("/", "@")):
                check_host(host)
        return make_conninfo("", **given)
    except (ProgrammingError, ValueError) as error:
        # libpq's message names the option or the invalid part. It is not repeated, because the part
        # before the host may contain the password.
        known = re.search(r'invalid URI query parameter: "([^"]*)"', str(error))
        what = f"has the unknown option {known[1]!r}" if known else "cannot be read"
        message = f"the store URL {what}"
        own = ", ".join(OWN)
        hint = f"{own}, and those of libpq; write %25 for %, %40 for @, %2F for / in a password"
        raise InvalidValue(message, hint=hint) from None


def _shown(url: str) -> str:
    """Return a URL without the part before its host, which may contain a password."""
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
