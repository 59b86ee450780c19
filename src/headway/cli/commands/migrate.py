"""`headway migrate`: brings a store to this program's schema."""

from __future__ import annotations

from headway.cli.command import command, new_command
from headway.cli.session import Session
from headway.contract.views import StatsQuery

app = new_command()


@command(app)
def migrate(session: Session) -> None:
    """Makes the store if there is none, and brings an older one to this program's schema.

    A store that is newer than this program is refused, and nothing is written.
    """
    stats = session.ask(StatsQuery())
    if session.json:
        session.terminal.document({"store": stats.identity, "epoch": stats.epoch})
    else:
        session.terminal.line("the store is ready")
