"""The handlers' dependencies: the database, the mail server, the push gateway, the writer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from examples.lanes.database import Database
from examples.lanes.mailer import Mailer
from examples.lanes.push import Gateway, HttpGateway
from examples.lanes.writer import Writer, find_writer


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The handlers' dependencies; tests pass their own.

    Attributes:
        writer: Writes summaries and suggestions.
        imports: Folder for files to import; nothing outside it is read.
    """

    database: Database
    mailer: Mailer
    gateway: Gateway
    writer: Writer
    imports: Path


def world_from(env: Mapping[str, str] = os.environ) -> World:
    """Return the dependencies configured by the environment; README.md lists the variables."""
    database = Database(env.get("LANES_DATABASE", "lanes-app.db"))
    return World(
        database=database,
        mailer=Mailer(
            host=env.get("SMTP_HOST", "127.0.0.1"),
            port=int(env.get("SMTP_PORT", "8025")),
            tls=env.get("SMTP_TLS", "no"),
            user=env.get("SMTP_USER", ""),
            password=env.get("SMTP_PASSWORD", ""),
            sender=env.get("MAIL_FROM", "boards@localhost"),
            database=database,
        ),
        gateway=HttpGateway(url=env.get("PUSH_URL", ""), token=env.get("PUSH_TOKEN", "")),
        writer=find_writer(env.get("LANES_WRITER", "")),
        imports=Path(env.get("LANES_IMPORTS", ".")),
    )
