"""Check problem replies."""

from __future__ import annotations

from typing import Any

import httpx


def problem(reply: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Return the problem in a reply; it must have this status and code."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    told = reply.json()
    assert told["code"] == code
    assert told["status"] == status
    assert told["type"] == f"/problems/{code}"
    assert told["instance"] == f"/requests/{reply.headers['x-request-id']}"
    return told
