"""The mail room: letters enqueued over HTTP, and workers in two languages that pull them."""

from __future__ import annotations
