"""`headway bridge`: other distributed systems at the edges of the store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.serving import ServeOptions
from headway.cli.session import Session

app = new_command()

_DOES = {
    "kafka": "kafka-in makes jobs of messages, kafka-out publishes messages of jobs when due",
    "cassandra": "keeps notifications that are due far ahead, read by the server's leader",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaOptions:
    """Where Kafka is; each wins over the table [kafka]."""

    servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...", help="Brokers to begin with.")
    ] = None
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve metrics at this port of loopback."),
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class InOptions:
    """What is read; each wins over the table [kafka.in]."""

    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="A topic to read; repeatable.")
    ] = None
    group: Annotated[str | None, typer.Option(help="The consumer group.")] = None
    format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="Of values: json, avro, protobuf, notifications."),
    ] = None
    kind: Annotated[str | None, typer.Option(help="Of messages that name none.")] = None
    lane: Annotated[str | None, typer.Option(help="Of messages that name none.")] = None
    key: Annotated[
        str | None,
        typer.Option(metavar="message|offset", help="What makes a job's key; else the message's."),
    ] = None
    dead_letters: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="For messages that cannot be read.")
    ] = None


@command(app, default=True)
def bridge(session: Session) -> None:
    """List the bridges, and whether headway.toml configures them.

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
    session: Session,
    kafka: KafkaOptions,
    options: InOptions,
    app_name: Annotated[
        str | None,
        typer.Option("--app", metavar="APP", help="Make jobs by the kinds of this App."),
    ] = None,
) -> None:
    """Read topics and make a job of each message, until SIGTERM or Ctrl-C.

    An offset is committed when its job is stored. Any number of these may run in one group.
    """
    configure_logging(session.settings)
    # Only those who use Kafka have its client.
    with needs_extra("kafka"):
        from headway.cli.kafka_bridge import read_messages  # noqa: PLC0415
    tally = read_messages(session, asdict(kafka), asdict(options), app_name)
    if session.json:
        session.terminal.document(tally)


@command(app, "kafka-out")
def kafka_out(session: Session, kafka: KafkaOptions, options: ServeOptions) -> None:
    """Publish jobs of the kinds kafka.publish and kafka.publish_in_order, until SIGTERM.

    A job succeeds when the broker has acknowledged its message. Any number of these may run.
    """
    configure_logging(session.settings)
    with needs_extra("kafka"):
        from headway.cli.kafka_bridge import publish_jobs  # noqa: PLC0415  (as above)
    settled = publish_jobs(session, asdict(kafka), options)
    if session.json:
        session.terminal.document({"settled": settled})
