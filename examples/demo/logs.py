"""The log of the demo, which goes to a file because the screen is live."""

from __future__ import annotations

import logging
from pathlib import Path

import structlog


def log_to(path: Path) -> None:
    """Write the log of the demo's own process to a file, appending if it exists."""
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
