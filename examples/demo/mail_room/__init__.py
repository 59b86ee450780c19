"""The mail room: letters enqueued over HTTP, and pulled by workers in two languages."""

from __future__ import annotations
