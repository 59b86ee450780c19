"""The SQLite store: the embedded default."""

from __future__ import annotations

from headway.stores.sqlite.options import SqliteOptions, parse_url
from headway.stores.sqlite.store import SqliteStore

__all__ = ["SqliteOptions", "SqliteStore", "parse_url"]
