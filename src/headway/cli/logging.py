"""Logging: human on a terminal, JSON lines otherwise; on standard error; never a secret."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from headway.cli.printable import printable
from headway.cli.settings import Settings

HIDDEN = "[hidden]"
_SECRET = re.compile(
    r"pass(word|wd|phrase)|secret|token|authori[sz]ation|api[_-]?key|credential|cookie",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]+@", re.IGNORECASE)


def configure_logging(settings: Settings) -> None:
    """Sets up logging for the whole process, the standard library's loggers included.

    Args:
        settings: the least level, and the format.
    """
    human = settings.log_format == "human"
    if settings.log_format == "auto":
        human = sys.stderr.isatty()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        hide_secrets,
    ]
    last: Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if human
        else structlog.processors.JSONRenderer()
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *((_printable,) if human else ()),
            last,
        ],
    )
    handler = _StderrHandler()
    handler.setFormatter(formatter)
    logger = logging.getLogger()
    logger.handlers = [handler]
    logger.setLevel(settings.log_level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


class _StderrHandler(logging.Handler):
    """Writes to what is standard error at that moment: a progress bar makes room for lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001  (a log line that cannot be written stops nobody)
            self.handleError(record)


def hide_secrets(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Replaces values whose names speak of secrets, and what stands before `@` in URLs."""
    del logger, name
    return cast("EventDict", _hidden(event))


def _hidden(value: object) -> object:
    if isinstance(value, str):
        return _IN_URL.sub(rf"\1{HIDDEN}@", value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {
            key: HIDDEN if _SECRET.search(str(key)) else _hidden(one) for key, one in fields.items()
        }
    if isinstance(value, list | tuple):
        return [_hidden(one) for one in cast("list[object]", value)]
    return value


def _printable(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    del logger, name
    return {
        key: "\n".join(map(printable, one.splitlines())) if isinstance(one, str) else one
        for key, one in event.items()
    }
