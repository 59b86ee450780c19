"""A beat as a server is told it, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headway.client.fields import Fields
from headway.contract.claims import BeatReply, BeatRequest


def beat_body(request: BeatRequest) -> Fields:
    """The body that tells a beat."""
    progress = {(job, run): msgspec.Raw(data) for job, run, data in request.progress}
    running: list[Fields] = []
    for job, run in request.running:
        one: Fields = {"job": job, "run": run}
        if (job, run) in progress:
            one["progress"] = progress[job, run]
        running.append(one)
    body: Fields = {
        "worker": request.worker,
        "running": running,
        "request": request.request,
        "lease": request.lease_ms,
        "lanes": list(request.lanes),
    }
    if request.name:
        body["name"] = request.name
    if request.leaving:
        body["leaving"] = True
    return body


def read_beat(said: Mapping[str, Any]) -> BeatReply:
    """The reply to a beat, of what the server says."""
    return BeatReply(
        now=said["now"],
        lease_until=said["lease_until"],
        lost=tuple((one["job"], one["run"]) for one in said["lost"]),
        cancel=tuple((one["job"], one["run"]) for one in said["cancel"]),
    )
