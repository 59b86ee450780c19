"""A job as the calendar's rows hold it: MessagePack of what differs from the defaults."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import msgspec

from headway.bridges.cassandra.buckets import LEAST_KEPT_MS
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateUse
from headway.core.job import DEFAULT_POLICY, JobPolicy, NewJob

_decoder = msgspec.msgpack.Decoder(NewJob)
_encode = msgspec.msgpack.Encoder().encode

_PLAIN = NewJob(id="", kind="")
_APART = {"id", "due_at", "policy", "gates"}
"""Fields that are the row's key, or that many jobs have in common."""
_OWN = tuple(one.name for one in fields(NewJob) if one.name not in _APART)


def row_of(job: NewJob) -> bytes:
    """The value of a job's row; its id and due time are the row's key."""
    said: dict[str, Any] = {"id": ""}
    for name in _OWN:
        value = getattr(job, name)
        if name == "kind" or value != getattr(_PLAIN, name):
            said[name] = value
    if job.gates:
        said["gates"] = _gates(job.gates)
    if job.policy is not DEFAULT_POLICY and job.policy != DEFAULT_POLICY:
        said["policy"] = _policy(job.policy)
    return _encode(said)


def job_of(id_: str, due_at: int, row: bytes | None) -> NewJob:
    """The job of a row, kept for at least a day after its end.

    Raises:
        InvalidValue: the row holds no job that this program can read.
    """
    try:
        job = _decoder.decode(row or b"")
    except msgspec.DecodeError as error:
        message = f"the row of job {id_} is not readable: {error}"
        raise InvalidValue(
            message, hint="it was not written by Headway, or by a newer one"
        ) from None
    return replace(job, id=id_, due_at=due_at, policy=_kept(job.policy))


@lru_cache(1024)
def _kept(policy: JobPolicy) -> JobPolicy:
    """One object for all that are equal: a store writes each policy of a batch once."""
    if policy.keep_ms >= LEAST_KEPT_MS:
        return policy
    return replace(policy, keep_ms=LEAST_KEPT_MS)


@lru_cache(1024)
def _policy(policy: JobPolicy) -> Mapping[str, Any]:
    said = _differing(policy, DEFAULT_POLICY)
    if policy.retry != DEFAULT_POLICY.retry:
        said["retry"] = _differing(policy.retry, DEFAULT_POLICY.retry)
    return said


@lru_cache(1024)
def _gates(gates: tuple[GateUse, ...]) -> list[Mapping[str, Any]]:
    plain = GateUse(name="", template="")
    return [{**_differing(one, plain), "name": one.name, "template": one.template} for one in gates]


def _differing(value: Hashable, plain: Hashable) -> dict[str, Any]:
    names = (one.name for one in fields(type(value)))  # type: ignore[arg-type]  (a record)
    return {name: got for name in names if (got := getattr(value, name)) != getattr(plain, name)}
