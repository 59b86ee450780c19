"""The routers of the server, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter

from headway.server.routes import hooks, jobs, me, moves, signals

ROUTERS: tuple[APIRouter, ...] = (
    jobs.ROUTES,
    moves.ROUTES,
    me.ROUTES,
    signals.ROUTES, hooks.ROUTES)
"""Each resource's router; a system brings its own besides."""
