"""The call centre: leads over HTTP, and calls through three numbers."""

from __future__ import annotations
