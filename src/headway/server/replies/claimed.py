"""A job that starts, as the reply to a claim says it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from headway.contract.claims import Claimed
from headway.core.job import JobPolicy
from headway.runtime.records import Record, embedded_json, record
from headway.server.replies.schema import notes_of, reply, reply_model

_NOTES = notes_of(Claimed)
_OTHERS: dict[str, Any] = {
    "args": Any,
    "policy": reply_model(JobPolicy),
    "members": dict[str, str],
    "subject": str | None,
}

ClaimedModel = reply(
    "ClaimedJob",
    "A job that starts now.",
    **{
        name: (_OTHERS.get(name, _type), _NOTES[name])
        for name, _type in (
            ("id", str),
            ("run", int),
            ("attempt", int),
            ("kind", str),
            ("stage", str),
            ("lane", str),
            ("tenant", str),
            ("subject", str),
            ("args", str),
            ("priority", int),
            ("due_at", int),
            ("policy", str),
            ("gated", bool),
            ("members", str),
            ("candidate", str),
        )
    },
    ref=(str, "The run's reference, `id:run`: a key under which signals find it."),
    signal_url=(str, "Where the outside world signals this run; give it to the provider."),
)
"""What a claim's reply says of each job."""


def claimed_record(claimed: Claimed, ref: str, signal_url: str) -> Record:
    """What a claim's reply says of a job."""
    fields: Record = claimed._asdict()
    fields["args"] = embedded_json(claimed.args)
    fields["policy"] = _policy_record(claimed.policy)
    return {**fields, "ref": ref, "signal_url": signal_url}


@lru_cache(maxsize=256)
def _policy_record(policy: JobPolicy) -> Record:
    return record(policy)
