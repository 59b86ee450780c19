"""Validation of new jobs before they are stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import cast

from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.core.gates.spec import HOLDS, GateUse, check_count
from headway.core.job import (
    MAX_ARGS,
    MAX_CANDIDATES,
    MAX_GATES,
    MAX_PRIORITY,
    MAX_SHARED_GATES,
    MOST_CHAINED,
    ON_DEADLINE,
    JobPolicy,
    NewJob,
)
from headway.core.naming import check_choice, check_name, whole_number
from headway.core.retry import JITTERS

LATEST = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_EACH_DIGIT = str.maketrans({**dict.fromkeys("0123456789abcdef", "x"), "x": "?"})
_UUID_DIGITS = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
_NAMES = {what: attrgetter(what) for what in ("kind", "lane", "tenant", "stage", "subject", "key")}
_MAY_BE_EMPTY, _OPTIONAL = {"tenant", "stage"}, {"subject", "key"}
_TIMES = {"due": attrgetter("due_at"), "expires": attrgetter("expires_at")}
_ID, _PRIORITY, _ARGS = attrgetter("id"), attrgetter("priority"), attrgetter("args")
_POLICY, _GATES = attrgetter("policy"), attrgetter("gates")
_CANDIDATES = attrgetter("candidates")


def is_job_id(text: str) -> bool:
    """Return whether a text can be the id of a job: a UUID in lower case, as uuid prints it."""
    return _UUID.fullmatch(text) is not None


def check_job_id(job: object) -> str:
    """Return the id of a job that a caller asks about, which may not exist.

    Raises:
        InvalidValue: it is not text, such as what `send` returned instead of its id.
    """
    if isinstance(job, str):
        return job
    message = f"a job's id must be text, not {type(job).__name__}"
    raise InvalidValue(message, hint="pass the id of what send returned: sent.id")


def read_reference(text: str) -> tuple[str, int] | None:
    """Return the job id and the run of a reference, `job:run`; None if it is not a reference."""
    job, _, run = text.partition(":")
    number = whole_number(run) if is_job_id(job) else None
    return None if number is None else (job, number)


def check_jobs(jobs: Sequence[NewJob]) -> None:
    """Validate new jobs.

    Raises:
        InvalidValue: a name, a priority, a time, an id or the candidates are not valid, or a job
            has too many gates.
        PayloadTooLarge: arguments exceed the size limit.
    """
    check_contents(jobs)
    _check_ids(list(map(_ID, jobs)))


def check_contents(jobs: Sequence[NewJob]) -> None:
    """Validate new jobs except for their ids, which those of timetable entries do not use.

    Raises:
        InvalidValue: see `check_jobs`.
        PayloadTooLarge: arguments exceed the size limit.
    """
    # Column by column: in a batch, most columns have a single distinct value.
    for what, column in _NAMES.items():
        for name in set(map(column, jobs)):
            if name is not None or what not in _OPTIONAL:
                check_name(what, name, empty=what in _MAY_BE_EMPTY)
    for policy in {id(one): one for one in map(_POLICY, jobs)}.values():
        _check_policy(policy)
    _check_numbers(jobs)
    if max(map(len, map(_ARGS, jobs)), default=0) > MAX_ARGS:
        job = next(job for job in jobs if len(job.args) > MAX_ARGS)
        message = f"the arguments of {job.kind!r} have {len(job.args)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_ARGS}; store them, send a reference")
    if max(map(len, map(_GATES, jobs)), default=0) > MAX_GATES:
        job = next(job for job in jobs if len(job.gates) > MAX_GATES)
        message = f"job of kind {job.kind!r} asks for {len(job.gates)} gates"
        raise InvalidValue(message, hint=f"at most {MAX_GATES}; let one gate stand for several")
    for job in filter(_CANDIDATES, jobs):
        check_candidates(f"job of kind {job.kind!r}", job.candidates)


def _check_policy(policy: JobPolicy, chained: int = 0) -> None:
    """Validate a policy: with no time no run could succeed, and a follow-up must be storable.

    Args:
        chained: how many jobs the one with this policy follows.

    Raises:
        InvalidValue: a duration is 0, a choice is unknown, or a follow-up is not valid.
    """
    # Compared here first: this runs for each job, and a call costs more.
    if policy.retry.jitter not in JITTERS:
        check_choice("the jitter", policy.retry.jitter, JITTERS)
    if policy.on_deadline not in ON_DEADLINE:
        check_choice("on_deadline", policy.on_deadline, ON_DEADLINE)
    timeout_ms = policy.timeout_ms
    if policy.start_within_ms < 1 or (timeout_ms is not None and timeout_ms < 1):
        what = "start_within" if policy.start_within_ms < 1 else "timeout"
        message = f"{what} is less than 1 ms, so that no run could succeed"
        raise InvalidValue(message, hint="at least 1 ms")
    if policy.reconcile is not None:
        check_name("the kind of reconcile", policy.reconcile)
    for what, follow in (("on_final", policy.on_final), ("on_accepted", policy.on_accepted)):
        if follow is not None:
            check_name(f"the kind of {what}", follow.kind)
            if follow.lane is not None:
                check_name(f"the lane of {what}", follow.lane)
            if follow.policy is not None:
                _check_chained(follow.kind, follow.policy, chained + 1)


def _check_chained(kind: str, policy: JobPolicy, chained: int) -> None:
    if chained > MOST_CHAINED:
        message = f"the follow-up {kind!r} is number {chained} in its chain, with a policy"
        raise InvalidValue(message, hint=f"at most {MOST_CHAINED} in a row have one")
    if policy.cascade or policy.on_accepted is not None:
        message = f"the follow-up {kind!r} is a cascade, and has no candidates"
        raise InvalidValue(message, hint="leave cascade and on_accepted out of its policy")
    _check_policy(policy, chained)


def _check_numbers(jobs: Sequence[NewJob]) -> None:
    for priority in set(map(_PRIORITY, jobs)):
        if not 0 <= priority <= MAX_PRIORITY:
            message = f"priority is {priority}"
            raise InvalidValue(message, hint=f"it must be from 0 (first) to {MAX_PRIORITY}")
    for what, column in _TIMES.items():
        for at in set(map(column, jobs)):
            if at is not None and not 0 <= at <= LATEST:
                message = f"{what} is {at} ms"
                raise InvalidValue(message, hint="a time from 1970 to 9999")


def _check_ids(ids: Sequence[object]) -> None:
    # One comparison for all ids takes a tenth of the time of one match for each.
    if {str}.issuperset(map(type, ids)):
        texts = cast("Sequence[str]", ids)
        if {len(_UUID_DIGITS)}.issuperset(map(len, texts)):
            digits = "".join(texts).translate(_EACH_DIGIT)
            if digits == _UUID_DIGITS * len(texts):
                return
    # Untyped callers may pass other types: convert to text, and refuse it as not a UUID.
    wrong = next(str(one) for one in ids if type(one) is not str or not is_job_id(one))
    message = f"the job's id {wrong[:60]!r} is not a UUID in text form"
    raise InvalidValue(message, hint="use 36 characters in lower case, as uuid prints it")


def check_gates(kind: str, gates: Sequence[GateUse]) -> None:
    """Validate the gates of one job together.

    Raises:
        InvalidValue: a gate is named twice or its name is not valid, an amount is below 1, a hold
            does not exist, or there are too many shared gates.
    """
    names = [use.name for use in gates]
    if len(set(names)) != len(names):
        message = f"job of kind {kind!r} names a gate twice: {', '.join(names)}"
        raise InvalidValue(message, hint="name it once, with the sum as amount")
    for use in gates:
        check_name("gate", use.name)
        check_count(f"the amount of {use.name!r}", use.amount, least=1)
        if use.hold not in HOLDS:
            check_choice(f"the hold of {use.name!r}", use.hold, HOLDS)
    if sum(use.shared for use in gates) > MAX_SHARED_GATES:
        message = f"job of kind {kind!r} asks for more than {MAX_SHARED_GATES} shared gates"
        raise InvalidValue(message, hint="let one gate stand for several")


def check_stage(whose: str, stage: str, gates: Sequence[GateUse]) -> None:
    """Validate the next stage of a job.

    Args:
        stage: name of the stage; empty to keep the current one.

    Raises:
        InvalidValue: the name is not valid, or there are gates without a stage.
    """
    if stage:
        check_name("stage", stage)
    elif gates:
        message = f"{whose} has gates, but no stage"
        raise InvalidValue(message, hint="name the stage that has these gates")


def check_candidates(whose: str, candidates: Sequence[str]) -> None:
    """Validate the candidates of a cascade.

    Raises:
        InvalidValue: there are too many, one is named twice, or a name is not valid.
    """
    if len(candidates) > MAX_CANDIDATES:
        message = f"{whose} has {len(candidates)} candidates"
        raise InvalidValue(message, hint=f"at most {MAX_CANDIDATES}")
    for candidate in candidates:
        check_name("candidate", candidate)
    if len(set(candidates)) != len(candidates):
        message = f"{whose} names a candidate twice"
        raise InvalidValue(message, hint="name each once, in the order to try them")
