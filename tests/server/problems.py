"""What a problem must be, whoever tells it."""

from __future__ import annotations

from typing import Any

import httpx


def problem(reply: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that a reply tells, which must be of this status and code."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    told = reply.json()
    assert told["code"] == code
    assert told["status"] == status
    assert told["type"] == f"/problems/{code}"
    assert told["instance"] == f"/requests/{reply.headers['x-request-id']}"
    return told
