"""The table [cassandra] of headway.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from headway.runtime.settings_table import Span, Table, read_table

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Factor = Annotated[int, Field(ge=1, le=99)]


class CassandraSettings(Table):
    """Where the calendar is; spans are milliseconds once they are read.

    Attributes:
        hosts: some nodes of the cluster.
        port: of their native protocol.
        datacenter: whose nodes are asked; else that of the first host.
        username: of a role that may read and write the keyspace.
        password: its password.
        tls_ca: a file with the certificates that the nodes' must be signed by; None for no TLS.
        keyspace: in which the tables are.
        replication: copies of each row, a number or one for each data centre; with it the keyspace
            is created if it does not exist.
        calendar: the table of the jobs; others are named after it.
        shards: parts into which a minute is split; what a calendar was made with stays.
        consistency: of each read and write; reads see what was written with it.
        horizon: how far the leader reads ahead.
        margin: a job is written there only if it is due by so much later than the horizon.
        every: how long the leader rests before it looks again.
        at_once: statements that are under way at a time, in each process.
    """

    hosts: Annotated[list[str], Field(min_length=1)]
    port: int = Field(default=9042, ge=1, le=65_535)
    datacenter: str | None = None
    username: str | None = None
    password: SecretStr | None = None
    tls_ca: str | None = None
    keyspace: Name = "headway"
    replication: Factor | dict[str, Factor] | None = None
    calendar: Name = "scheduled_notifications"
    shards: int = Field(default=16, ge=1, le=1_024)
    consistency: Literal["LOCAL_QUORUM", "QUORUM", "ALL"] = "LOCAL_QUORUM"
    horizon: Annotated[Span, Field(ge=60_000)] = 900_000
    margin: Annotated[Span, Field(ge=60_000)] = 120_000
    every: Annotated[Span, Field(ge=100)] = 15_000
    at_once: int = Field(default=64, ge=1, le=1_024)


def read_cassandra(written: Mapping[str, object]) -> CassandraSettings:
    """Read the table [cassandra].

    Raises:
        InvalidValue: a key is unknown or a value unusable; the message names it.
    """
    return read_table("cassandra", CassandraSettings, written)
