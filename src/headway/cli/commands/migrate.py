"""`headway migrate`: brings a store to this program's schema."""

from __future__ import annotations

from headway.cli.command import command, new_command
from headway.cli.postgres import is_postgres, migrate_postgres
from headway.cli.session import Session
from headway.contract.views import StatsQuery
from headway.core.errors import InvalidValue
from headway.stores.redis.options import SCHEMES as REDIS_SCHEMES
from headway.stores.sqlite import parse_url
from headway.stores.sqlite.connection import migrate as migrate_file

app = new_command()


@command(app)
def migrate(session: Session) -> None:
    """Makes the store if there is none, and brings an older one to this program's schema.

    Stop the workers of a SQLite store first; those of a PostgreSQL store go on. A Redis store has
    no schema: its server and its format are looked at. A store that is newer than this program is
    refused, and nothing is written. With --json: {"before", "now"}, versions of the schema; 0 for
    none.

    Raises:
        InvalidValue: this kind of store keeps nothing.
    """
    url = session.store_url
    if is_postgres(url):
        before, now = migrate_postgres(url)
    elif url.startswith("sqlite:"):
        before, now = migrate_file(parse_url(url))
    elif url.partition("://")[0] in REDIS_SCHEMES:
        before, now = 0, 0
    else:
        message = f"a store of {url.partition(':')[0]}:// keeps nothing"
        hint = "give sqlite:///headway.db, postgresql://… or redis://…"
        raise InvalidValue(message, hint=hint)
    # Opening it sets what the schema does not hold, such as the journal's mode.
    session.ask(StatsQuery())
    if session.json:
        session.terminal.document({"before": before, "now": now})
    elif not now:
        session.terminal.line("the store is ready: it needs no schema")
    elif before == now:
        session.terminal.line(f"the store is current: schema {now}")
    else:
        session.terminal.line(f"the store is ready: schema {before} became {now}")
