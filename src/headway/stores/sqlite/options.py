"""The options of a database file, and the URL that contains them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import parse_qsl, unquote

from headway.core.errors import InvalidValue
from headway.core.naming import read_whole

Synchronous = Literal["full", "normal"]

DEFAULT_PATH = "headway.db"
DEFAULT_RESERVE = 67_108_864
DEFAULT_PATIENCE = 10_000
_HINT = "sqlite:///relative.db or sqlite:////absolute.db, ?synchronous=full|normal"


@dataclass(frozen=True, kw_only=True, slots=True)
class SqliteOptions:
    """The options of a database file.

    Attributes:
        path: path of the file. The file is created if it does not exist; its folder is not.
        synchronous: "full" waits for the device at each commit; "normal" may lose the last
            commits when the power fails, but not when a process dies.
        reserve_bytes: while the device has less free space than this, new jobs are refused, so that
            those in flight can still be settled.
        patience_ms: how long an operation waits for other processes before it is refused.
    """

    path: Path
    synchronous: Synchronous = "full"
    reserve_bytes: int = DEFAULT_RESERVE
    patience_ms: int = DEFAULT_PATIENCE


def parse_url(url: str) -> SqliteOptions:
    """Read a `sqlite:` URL.

    Args:
        url: such as `sqlite:///headway.db?synchronous=normal`.

    Raises:
        InvalidValue: it is not such a URL, or has an unknown option.
    """
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    if scheme != "sqlite" or not place.startswith("/"):
        message = f"{url!r} is not the URL of a SQLite store"
        raise InvalidValue(message, hint=_HINT)
    path = unquote(place[1:]) or DEFAULT_PATH
    if "\0" in path or path == ":memory:":
        message = f"{path!r} is not the path of a file"
        raise InvalidValue(message, hint="use memory:// for a store in this process's memory")
    given = dict(parse_qsl(query, keep_blank_values=True))
    unknown = set(given) - {"synchronous", "reserve_bytes", "patience_ms"}
    if unknown:
        message = f"the store URL has the unknown option {min(unknown)!r}"
        raise InvalidValue(message, hint="synchronous, reserve_bytes or patience_ms")
    return SqliteOptions(
        path=Path(path),
        synchronous=_synchronous(given.get("synchronous", "full")),
        reserve_bytes=read_whole(
            "reserve_bytes", given.get("reserve_bytes", str(DEFAULT_RESERVE)), digits=15
        ),
        patience_ms=read_whole("patience_ms", given.get("patience_ms", str(DEFAULT_PATIENCE))),
    )


def _synchronous(value: str) -> Synchronous:
    for known in get_args(Synchronous):
        if value.lower() == known:
            return known
    message = f"synchronous is {value!r}"
    raise InvalidValue(message, hint="it must be full or normal")
