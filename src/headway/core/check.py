"""The last check of a new job before it is stored."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.core.gates.spec import GateUse, check_count
from headway.core.job import (
    MAX_ARGS,
    MAX_CANDIDATES,
    MAX_GATES,
    MAX_PRIORITY,
    MAX_SHARED_GATES,
    NewJob,
)
from headway.core.naming import check_name

LATEST = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_job_id(text: str) -> bool:
    """Return whether a text can be the id of a job: a UUID in lower case, as uuid prints it."""
    return _UUID.fullmatch(text) is not None


def read_reference(text: str) -> tuple[str, int] | None:
    """Return the job and the run that a reference, `job:run`, names; None if it is not one."""
    job, _, run = text.partition(":")
    usable = is_job_id(job) and run.isascii() and run.isdigit() and len(run) < 10
    return (job, int(run)) if usable else None


def check_jobs(jobs: Sequence[NewJob]) -> None:
    """Accept jobs that a store can keep.

    Raises:
        InvalidValue: a name, a priority, a time, an id or the candidates are unusable.
        PayloadTooLarge: arguments are above the limit.
    """
    checked: tuple[str, str, str] | None = None
    for job in jobs:
        place = (job.kind, job.lane, job.tenant)
        # A batch has mostly one kind and lane; their names are looked at once.
        if place != checked:
            check_name("kind", job.kind)
            check_name("lane", job.lane)
            check_name("tenant", job.tenant, empty=True)
            checked = place
        _check_own(job)


def _check_own(job: NewJob) -> None:
    if job.subject is not None:
        check_name("subject", job.subject)
    if job.key is not None:
        check_name("key", job.key)
    # What callers without types pass is turned to text here, and refused as no UUID.
    if not is_job_id(str(job.id)) or type(job.id) is not str:
        message = f"the job's id {str(job.id)[:60]!r} is no UUID in text"
        raise InvalidValue(message, hint="36 characters, lower case, as uuid prints it")
    if not 0 <= job.priority <= MAX_PRIORITY:
        message = f"priority is {job.priority}"
        raise InvalidValue(message, hint=f"from 0 (first) to {MAX_PRIORITY}")
    for what, at in (("due", job.due_at), ("expires", job.expires_at)):
        if at is not None and not 0 <= at <= LATEST:
            message = f"{what} is {at} ms"
            raise InvalidValue(message, hint="a time from 1970 to 9999")
    if len(job.args) > MAX_ARGS:
        message = f"the arguments of {job.kind!r} have {len(job.args)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_ARGS}; store them, send a reference")
    if len(job.gates) > MAX_GATES:
        message = f"job of kind {job.kind!r} asks for {len(job.gates)} gates"
        raise InvalidValue(message, hint=f"at most {MAX_GATES}; let one gate stand for several")
    if job.candidates:
        check_candidates(f"job of kind {job.kind!r}", job.candidates)


def check_gates(kind: str, gates: Sequence[GateUse]) -> None:
    """Accept gates that a job can ask for together.

    Raises:
        InvalidValue: one is named twice or has no name, an amount is below 1, or there are too
            many shared ones.
    """
    names = [use.name for use in gates]
    if len(set(names)) != len(names):
        message = f"job of kind {kind!r} asks for one gate twice: {', '.join(names)}"
        raise InvalidValue(message, hint="name it once, with the sum as amount")
    for use in gates:
        check_name("gate", use.name)
        check_count(f"the amount of {use.name!r}", use.amount, least=1)
    if sum(use.shared for use in gates) > MAX_SHARED_GATES:
        message = f"job of kind {kind!r} asks for more than {MAX_SHARED_GATES} shared gates"
        raise InvalidValue(message, hint="let one gate stand for several")


def check_stage(whose: str, stage: str, gates: Sequence[GateUse]) -> None:
    """Accept a stage that a job may go to.

    Args:
        stage: its name; empty to stay where the job is.

    Raises:
        InvalidValue: the name is unusable, or there are gates without a stage.
    """
    if stage:
        check_name("stage", stage)
    elif gates:
        message = f"{whose} has gates, but no stage"
        raise InvalidValue(message, hint="name the stage that has these gates")


def check_candidates(whose: str, candidates: Sequence[str]) -> None:
    """Accept candidates that a cascade can ask.

    Raises:
        InvalidValue: they are too many, one is named twice, or a name is unusable.
    """
    if len(candidates) > MAX_CANDIDATES:
        message = f"{whose} has {len(candidates)} candidates"
        raise InvalidValue(message, hint=f"at most {MAX_CANDIDATES}")
    for candidate in candidates:
        check_name("candidate", candidate)
    if len(set(candidates)) != len(candidates):
        message = f"{whose} names a candidate twice"
        raise InvalidValue(message, hint="each once, in the order to be asked")
