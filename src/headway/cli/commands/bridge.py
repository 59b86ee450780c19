"""`headway bridge`: connections to Kafka and Cassandra."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.options import KindsApp
from headway.cli.serving import ServeOptions
from headway.cli.session import CommandSession

app = new_command()

_DOES = {
    "kafka": "kafka-in creates jobs from messages, kafka-out publishes messages when due",
    "cassandra": "stores notifications due in the far future; the server's leader reads them",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaOptions:
    """Connection to Kafka; options override the table [kafka]."""

    servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...", help="Bootstrap brokers.")
    ] = None
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve metrics on this loopback port."),
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class InOptions:
    """Topics to read, and how; options override the table [kafka.in]."""

    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Topic to read; repeatable.")
    ] = None
    group: Annotated[str | None, typer.Option(help="Consumer group.")] = None
    format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Format of message values: json, avro, protobuf or notifications.",
        ),
    ] = None
    kind: Annotated[str | None, typer.Option(help="Kind for messages without one.")] = None
    lane: Annotated[str | None, typer.Option(help="Lane for messages without one.")] = None
    key: Annotated[
        str | None,
        typer.Option(
            metavar="message|offset", help="Source of a job's key. Defaults to the message's own."
        ),
    ] = None
    dead_letters: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic for messages that cannot be read.")
    ] = None


@command(app, default=True)
def bridge(session: CommandSession) -> None:
    """List the bridges and whether headway.toml configures each.

    With --json: {"bridges": {"kafka": true, "cassandra": false}}.
    """
    configured = {
        "kafka": bool(session.settings.kafka),
        "cassandra": bool(session.settings.cassandra),
    }
    session.terminal.listing(
        {"bridges": configured},
        ["BRIDGE", "CONFIGURED", "WHAT IT DOES"],
        [
            [name, f"by [{name}]" if configured[name] else "no", does]
            for name, does in _DOES.items()
        ],
        empty="",
    )


@command(app, "kafka-in")
def kafka_in(
    session: CommandSession,
    kafka: KafkaOptions,
    options: InOptions,
    app_name: KindsApp = None,
) -> None:
    """Read topics and create a job for each message, until SIGTERM or Ctrl-C.

    An offset is committed once its job is stored. Any number of processes can share a group.
    """
    configure_logging(session.settings)
    with needs_extra("kafka"):
        from headway.cli.kafka_bridge import read_messages  # noqa: PLC0415
    tally = read_messages(session, asdict(kafka), asdict(options), app_name)
    if session.json:
        session.terminal.document(tally)


@command(app, "kafka-out")
def kafka_out(session: CommandSession, kafka: KafkaOptions, options: ServeOptions) -> None:
    """Publish jobs of the kinds kafka.publish and kafka.publish_in_order, until SIGTERM.

    A job succeeds once the broker has acknowledged its message. Any number of processes can run.
    """
    configure_logging(session.settings)
    with needs_extra("kafka"):
        from headway.cli.kafka_bridge import publish_jobs  # noqa: PLC0415
    settled = publish_jobs(session, asdict(kafka), options)
    if session.json:
        session.terminal.document({"settled": settled})
