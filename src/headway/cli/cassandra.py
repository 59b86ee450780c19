"""Cassandra, for commands; who does not use it needs no driver."""

from __future__ import annotations

from headway.bridges.cassandra.link import OpenLink
from headway.bridges.cassandra.settings import read_cassandra
from headway.cli.extras import needs_extra
from headway.cli.settings import Settings


def make_link(settings: Settings) -> OpenLink:
    """The link to the calendar of the table [cassandra]; it is not opened yet.

    Raises:
        InvalidValue: a setting is unusable, or the driver is not installed.
    """
    read = read_cassandra(settings.cassandra)
    with needs_extra("cassandra"):
        from headway.bridges.cassandra.driver import CassandraLink  # noqa: PLC0415
    return CassandraLink(read)
