"""A reference names a job and a run; of a batch, each job is checked."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headway.core.check import LATEST, check_jobs, read_reference
from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.core.gates.spec import GateUse
from headway.core.job import MAX_ARGS, MAX_GATES, MAX_PRIORITY, NewJob

JOB = "0198c0de-0000-7000-8000-000000000001"
OTHER = "0198c0de-0000-7000-8000-000000000002"


def test_reference_names_a_job_and_a_run() -> None:
    assert read_reference(f"{JOB}:12") == (JOB, 12)


@pytest.mark.parametrize(
    "text",
    [
        *("", JOB, f"{JOB}:", f"{JOB}:x", f"{JOB}:-1", f"{JOB}:1:2", f"{JOB}: 1", f"{JOB}:²"),
        *(f"{JOB}:1234567890", f"{JOB.upper()}:1", "1:1", f"{JOB[:-1]}:1", f"x{JOB}:1"),
    ],
)
def test_other_text_is_not_a_reference(text: str) -> None:
    assert read_reference(text) is None


def job(**fields: Any) -> NewJob:
    return NewJob(**{"id": JOB, "kind": "step", "lane": "main", "tenant": "", **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({what: ""}, f"{what} is empty") for what in ("kind", "lane", "subject", "key")),
        *(({what: None}, f"{what} must be text") for what in ("kind", "lane", "tenant")),
        ({"id": UUID(JOB)}, "is not a UUID in text form"),
        ({"id": JOB.encode()}, "is not a UUID in text form"),
        ({"id": JOB.upper()}, "is not a UUID in text form"),
        ({"id": ""}, "is not a UUID in text form"),
        ({"id": JOB + OTHER}, "is not a UUID in text form"),
        ({"id": JOB[:-1]}, "is not a UUID in text form"),
        ({"id": "x" + JOB[1:]}, "is not a UUID in text form"),
        ({"id": "0" + JOB.replace("-", "", 1)}, "is not a UUID in text form"),
        ({"priority": -1}, "priority is -1"),
        ({"priority": MAX_PRIORITY + 1}, f"priority is {MAX_PRIORITY + 1}"),
        ({"due_at": -1}, "due is -1 ms"),
        ({"due_at": LATEST + 1}, f"due is {LATEST + 1} ms"),
        ({"expires_at": -1}, "expires is -1 ms"),
        ({"gates": (GateUse(name="a", template="a"),) * (MAX_GATES + 1)}, f"{MAX_GATES + 1} gates"),
        ({"candidates": ("anna", "anna")}, "names a candidate twice"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_invalid_job_of_a_batch_is_refused_at_any_place(
    fields: dict[str, Any], message: str, place: int
) -> None:
    batch = [job(), job(id=OTHER, subject="who", key="k", due_at=0, expires_at=LATEST)]
    batch.insert(place, job(**fields))
    with pytest.raises(InvalidValue, match=message):
        check_jobs(batch)


def test_arguments_above_the_limit_are_refused_in_a_batch() -> None:
    check_jobs([job(args=b"x" * MAX_ARGS)])
    with pytest.raises(PayloadTooLarge, match=f"of 'large' have {MAX_ARGS + 1} bytes"):
        check_jobs([job(), job(kind="large", args=b"x" * (MAX_ARGS + 1))])


def test_two_ids_with_compensating_lengths_are_refused() -> None:
    with pytest.raises(InvalidValue, match="is not a UUID in text form"):
        check_jobs([job(id=JOB[:-1]), job(id=JOB[-1] + OTHER)])


def test_empty_batch_is_no_error() -> None:
    check_jobs([])
