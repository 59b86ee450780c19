"""Logging to standard error: human-readable on a terminal, JSON lines otherwise.

If a log file is configured, the same lines are also written there as JSON. Secrets are masked.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from headway.cli.settings import Settings
from headway.cli.text import printable
from headway.core.hidden import hidden_value
from headway.runtime.log_file import LogFile

_FIRST_FIELD = re.compile(r" \w+=%\(")
_INNER = frozenset({"_record", "_from_structlog"})
"""Internal fields of structlog, which are not printed."""
_FIRST = ("timestamp", "level", "logger", "event")
"""The fields that every line has, in their order."""


def configure_logging(settings: Settings) -> None:
    """Set up logging for the whole process, including the standard library's loggers."""
    human = settings.log_format == "human"
    if settings.log_format == "auto":
        human = sys.stderr.isatty()
    shared: list[Processor] = [
        _fields,
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        hide_secrets,
    ]
    as_json: tuple[Processor, ...] = (_in_order, structlog.processors.JSONRenderer())
    handler = _StderrHandler()
    handler.setFormatter(
        _formatter(shared, _printable, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
        if human
        else _formatter(shared, *as_json)
    )
    handlers: list[logging.Handler] = [handler]
    if settings.log_file is not None:
        size, keep = settings.log_file_size, settings.log_file_keep
        handlers.append(LogFile(settings.log_file, size=size, keep=keep))
        handlers[-1].setFormatter(_formatter(shared, *as_json))
    logger = logging.getLogger()
    logger.handlers = handlers
    logger.setLevel(settings.log_level.upper())
    # It logs each request; the client reports relevant errors itself.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # It logs its context and plug-ins before each migration.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # It logs errors that it ignores because a first one, such as a lost connection, is raised.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    # Headway logs start and stop itself.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _formatter(shared: list[Processor], *last: Processor) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        pass_foreign_args=True,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )


class _StderrHandler(logging.Handler):
    """Writes to the current `sys.stderr`, which a progress bar replaces while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001  (a log line that cannot be written is dropped)
            self.handleError(record)


def _fields(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Turn a message such as `job failed kind=%(kind)s` into an event and its fields."""
    given = event.pop("positional_args", None)
    if isinstance(given, dict) and given:
        event["event"] = _FIRST_FIELD.split(event["_record"].msg, maxsplit=1)[0]
        event.update(cast("EventDict", given))
    return event


def hide_secrets(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Mask values whose names suggest secrets, and what looks like a secret within texts.

    The latter are credentials in URLs and headers, tokens, and values after names that suggest
    secrets (`signature=...`).
    """
    shown = cast("EventDict", hidden_value(event))
    return {name: event[name] if name in _INNER else one for name, one in shown.items()}


def _in_order(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Put the fields that every line has first, so that lines can be read one below another."""
    return {name: event[name] for name in _FIRST if name in event} | dict(event)


def _printable(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    return {
        key: "\n".join(map(printable, one.splitlines())) if isinstance(one, str) else one
        for key, one in event.items()
    }
