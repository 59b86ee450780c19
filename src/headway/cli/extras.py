"""Extras: parts of Headway whose packages a plain install does not include."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from headway.core.errors import InvalidValue, StoreUnavailable


@contextmanager
def needs_extra(extra: str) -> Generator[None]:
    """Name the extra if an import in this block fails.

    Raises:
        InvalidValue: a package of the extra is not installed.
        ModuleNotFoundError: a module of Headway itself is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "headway":
            raise
        message = f"this needs the package {error.name}, which is not installed"
        raise InvalidValue(message, hint=f"pip install 'headway[{extra}]'") from None


DRIVER = "pip install 'headway[postgres]'"
"""The command that installs PostgreSQL's driver."""

_SCHEMES = ("postgresql", "postgres")


def is_postgres(url: str) -> bool:
    """Return whether a URL names a PostgreSQL store."""
    return url.partition("://")[0] in _SCHEMES


def unmigrated_url(url: str) -> str:
    """Return the URL that opens a store without creating or migrating its schema."""
    if not is_postgres(url):
        return url
    return f"{url}{'&' if '?' in url else '?'}migrate=off"


def plain_url(url: str) -> str:
    """Return the URL of a store's database as a directory's, without other options."""
    # Imported here: the driver may not be installed.
    from headway.stores.postgres.options import OWN  # noqa: PLC0415

    start, _, query = url.partition("?")
    own = {*OWN} - {"pooled"}
    kept = [one for one in query.split("&") if one and one.partition("=")[0] not in own]
    return "?".join([start, *(["&".join(kept)] if kept else [])])


def migrate_postgres(url: str) -> tuple[int, int]:
    """Upgrade a store to this program's schema.

    Returns:
        The version before, and the version now.

    Raises:
        StoreUnavailable: the driver is not installed, or the server is unreachable.
        StoreError: the schema does not belong to Headway, or is newer; nothing was changed.
    """
    try:
        # Imported here: the driver may not be installed.
        from headway.stores.postgres.options import parse_url  # noqa: PLC0415
        from headway.stores.postgres.server_facts import migrate  # noqa: PLC0415
    except ImportError as error:
        message = f"the PostgreSQL store needs a package that is not installed: {error.name}"
        raise StoreUnavailable(message, hint=DRIVER) from error
    return migrate(parse_url(url))
