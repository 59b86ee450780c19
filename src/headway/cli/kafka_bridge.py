"""The processes of the Kafka bridge: messages into jobs, and jobs into messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import replace
from typing import cast

from headway.bridges.kafka.consuming import KafkaIn
from headway.bridges.kafka.message import EnqueueSink, JobReader, Sink
from headway.bridges.kafka.publishing import KafkaKinds, Publisher, PublishingCounts, declare_kafka
from headway.bridges.kafka.schemas import value_reader
from headway.bridges.kafka.settings import (
    KafkaSettings,
    producer_config,
    read_kafka_settings,
)
from headway.cli.app_file import open_app
from headway.cli.extras import needs_extra
from headway.cli.serving import ServeOptions, serve, trace_if_enabled
from headway.cli.session import CommandSession
from headway.runtime import event_loop
from headway.runtime.app import App

PUBLISHED_AT_ONCE = 1_000
"""Default number of jobs waiting for their acknowledgement at once."""

_NAMES = {"topic": "topics"}
"""Settings of the options that have another name there."""


def read_messages(
    session: CommandSession,
    kafka: Mapping[str, object],
    options: Mapping[str, object],
    app_name: str | None,
) -> Mapping[str, int]:
    """Create jobs from messages until SIGTERM or Ctrl-C.

    Returns:
        The number of messages read, jobs created, and messages that could not be read.
    """
    settings = _settings(session, kafka, {"in": options})
    opened = open_app(session, app_name)
    trace_if_enabled(opened, session.settings)
    made = _sink(session, settings, opened, declared=bool(app_name or session.settings.app))
    tally = PublishingCounts()
    with _metrics(tally, kafka):
        event_loop.run(_read(session, settings, opened, made, tally))
    return {
        "consumed": tally.consumed.total(),
        "created": tally.enqueued.total(),
        "dead_letters": tally.dead_lettered.total(),
    }


def _sink(
    session: CommandSession, settings: KafkaSettings, opened: App, *, declared: bool
) -> AbstractAsyncContextManager[Sink]:
    """Return the sink that stores messages, not entered yet."""
    wanted = settings.in_
    if wanted.format == "notifications":
        return _notifications(session, opened)
    reader = JobReader(
        value_reader(settings),
        app=opened if declared else None,
        kind=wanted.kind,
        lane=wanted.lane,
        by_offset=wanted.key == "offset",
    )
    return nullcontext(EnqueueSink(opened, reader))


def _notifications(session: CommandSession, app: App) -> AbstractAsyncContextManager[Sink]:
    """Declare the kinds of the system `notifications`, and return its sink, without a server."""
    # Before connecting to the store, so that a missing package is reported at once.
    with needs_extra("systems"):
        from headway.cli.systems import make_systems  # noqa: PLC0415  (an extra)
        from headway.server.service import ServerOptions, Service  # noqa: PLC0415
        from headway.systems.notifications import Notifications  # noqa: PLC0415
        from headway.systems.notifications.from_kafka import NotificationSink  # noqa: PLC0415
    systems = make_systems(["notifications"], session.settings, session.store_url)
    systems.declare(app)
    (system,) = systems.each
    service = Service(app.store, ServerOptions(), app=app)

    @asynccontextmanager
    async def intake() -> AsyncGenerator[Sink]:
        async with systems.opened(session.settings.public_url):
            try:
                yield NotificationSink(service, cast("Notifications", system).context)
            finally:
                await service.close()

    return intake()


async def _read(
    session: CommandSession,
    settings: KafkaSettings,
    opened: App,
    sink: AbstractAsyncContextManager[Sink],
    tally: PublishingCounts,
) -> None:
    publisher = Publisher(producer_config(settings))
    await opened.reach(session.settings.store_wait)
    try:
        async with opened, sink as stores:
            bridge = KafkaIn(settings, stores, publisher, tally=tally)
            event_loop.on_signals(lambda _: bridge.stop())
            await bridge.run()
    finally:
        publisher.close()


def publish_jobs(
    session: CommandSession, kafka: Mapping[str, object], options: ServeOptions
) -> int:
    """Publish the messages of jobs until SIGTERM or Ctrl-C; return how many runs were settled."""
    settings = _settings(session, kafka, {})
    opened = open_app(session, None)
    kinds = declare_kafka(opened, settings=settings)
    trace_if_enabled(opened, session.settings)
    options = replace(
        options,
        lanes=options.lanes or settings.out.lane,
        concurrency=options.concurrency or PUBLISHED_AT_ONCE,
    )
    with _metrics(kinds.tally, kafka):
        return event_loop.run(
            serve(opened, options, settings=session.settings, around=_open(kinds))
        )


@asynccontextmanager
async def _open(kinds: KafkaKinds) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        kinds.publisher.close()


def _settings(
    session: CommandSession, kafka: Mapping[str, object], tables: Mapping[str, Mapping[str, object]]
) -> KafkaSettings:
    """Return the settings of the table [kafka], overridden by options."""
    written = dict(session.settings.kafka)
    if kafka["servers"] is not None:
        written["servers"] = kafka["servers"]
    for name, options in tables.items():
        given = {_NAMES.get(key, key): one for key, one in options.items() if one is not None}
        table = written.get(name, {})
        written[name] = {**table, **given} if isinstance(table, dict) else table
    return read_kafka_settings(written)


def _metrics(
    tally: PublishingCounts, kafka: Mapping[str, object]
) -> AbstractContextManager[object]:
    port = kafka["metrics_port"]
    if not isinstance(port, int):
        return nullcontext()
    with needs_extra("server"):
        from headway.bridges.kafka.metrics import serving_metrics  # noqa: PLC0415  (an extra)
    return serving_metrics(tally, port)
