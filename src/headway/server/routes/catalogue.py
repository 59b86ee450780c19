"""The routers of the server, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter

from headway.server.routes import hooks, signals

ROUTERS: tuple[APIRouter, ...] = (signals.ROUTES, hooks.ROUTES)
"""Each resource's router; a system brings its own besides."""
