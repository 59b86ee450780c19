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
"""Of a worker. Between two of them nothing is written and nobody is asked."""
SERVER = ("webhook comes", "webhook told, not answered", "lead stored, not answered")
"""Of a server."""
RINGS = "while it rings"
"""Killed from without, as soon as the carrier has a call that rings."""
POINTS: tuple[tuple[str, str], ...] = (
    *(("worker", one) for one in (*WORKER, RINGS)),
    *(("server", one) for one in (*SERVER, RINGS)),
)
"""Who is killed, and where."""
