"""Schemas of other versions of Headway, derived from the shipped one."""

from __future__ import annotations

from pathlib import Path

import psycopg

from headway.stores.postgres.options import parse_url
from headway.stores.postgres.schema import latest, migrate_schema, shipped, version_of

LATER = """
DO $$
DECLARE
  one record;
BEGIN
  FOR one IN SELECT relname FROM pg_class
    WHERE relnamespace = current_schema::regnamespace AND relkind IN ('r', 'p')
      AND NOT relispartition
  LOOP
    EXECUTE format('ALTER TABLE %I ADD COLUMN later_text text NOT NULL DEFAULT ''x''', one.relname);
    EXECUTE format('ALTER TABLE %I ADD COLUMN later_number bigint', one.relname);
    EXECUTE format('CREATE INDEX ON %I (later_number)', one.relname);
  END LOOP;
END $$;
CREATE TABLE later (n bigint PRIMARY KEY);
"""
"""Adds to every table, as the next version may."""


def folder_of(path: Path, *, until: int = 0, later: bool = False) -> Path:
    """Copy the shipped migrations: up to a number, or with an additional one."""
    for one in shipped().iterdir():
        if one.name.endswith(".sql") and (not until or int(one.name[:4]) <= until):
            path.joinpath(one.name).write_text(one.read_text())
    if later:
        path.joinpath(f"{latest() + 1:04}_later.sql").write_text(LATER)
    return path


def migrate_to(url: str, folder: Path) -> int:
    """Migrate a namespace to the schema of a folder, and return its number."""
    options = parse_url(url)
    with psycopg.connect(options.conninfo, autocommit=True) as connection:
        migrate_schema(connection, options, folder)
        return version_of(connection, options).number
