"""The log of the demo: a file, so that no line disturbs the screen."""

from __future__ import annotations

import logging
from pathlib import Path

import structlog


def log_to(path: Path) -> None:
    """Writes what the demo's own process logs to a file.

    Args:
        path: made, or gone on with.
    """
    logging.basicConfig(
        filename=path,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    logging.getLogger("headway").setLevel(logging.INFO)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
