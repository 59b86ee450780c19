"""The routers of the server, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter

from headway.server.routes import (
    claims,
    gates,
    hooks,
    jobs,
    lanes,
    leases,
    me,
    moves,
    settlements,
    signals,
    timetable,
    tokens,
    views,
)

ROUTERS: tuple[APIRouter, ...] = (
    jobs.ROUTES,
    moves.ROUTES,
    lanes.ROUTES,
    gates.ROUTES,
    timetable.ROUTES,
    views.ROUTES,
    tokens.ROUTES,
    me.ROUTES,
    claims.ROUTES,
    settlements.ROUTES,
    leases.ROUTES,
    signals.ROUTES,
    hooks.ROUTES,
)
"""Each resource's router; a system brings its own besides."""
