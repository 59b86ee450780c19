"""Points at which processes of the system `calls` kill themselves: each step, claim to end."""

from __future__ import annotations

WORKER = (
    "claimed, not checked",
    "checked, not told",
    "given a line",
    "before the hand-over",
    "handed over",
    "before the request",
    "request half sent",
    "request sent",
    "reply half read",
    "dialled, not known",
    "known",
    "handler at its end",
    "before the provider is asked",
    "provider has answered",
)
"""Points in a worker. Between two of them nothing is written and no request is sent."""
SERVER = ("webhook comes", "webhook told, not answered", "lead stored, not answered")
"""Points in a server."""
RINGS = "while it rings"
"""Killed from outside, as soon as the carrier has a ringing call."""
POINTS: tuple[tuple[str, str], ...] = (
    *(("worker", one) for one in (*WORKER, RINGS)),
    *(("server", one) for one in (*SERVER, RINGS)),
)
"""The roles and the points at which they are killed."""
