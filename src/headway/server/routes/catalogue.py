"""The routers of the server, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute

from headway.server.routes import (
    claims,
    gates,
    jobs,
    lanes,
    monitoring,
    moves,
    settlements,
    signals,
    timetable,
    tokens,
    views,
)

ROUTERS: tuple[APIRouter, ...] = (
    jobs.ROUTES,
    jobs.FLOWS,
    moves.ROUTES,
    lanes.ROUTES,
    gates.ROUTES,
    timetable.ROUTES,
    views.ROUTES,
    tokens.ROUTES,
    tokens.ME,
    claims.ROUTES,
    settlements.ROUTES,
    settlements.LEASES,
    signals.ROUTES,
    signals.HOOKS,
    monitoring.ROUTES,
)
"""Each resource's router; a system brings its own besides."""

_MOST_CALLED = {"/v1/jobs", "/v1/claims", "/v1/settlements", "/v1/leases"}

QUICK: tuple[APIRoute, ...] = tuple(
    route
    for one in ROUTERS
    for route in one.routes
    if isinstance(route, APIRoute)
    and route.path in _MOST_CALLED
    and "POST" in (route.methods or ())
)
"""What is called so often that the usual way is too long for it."""
