"""A reference names a job and a run, and nothing else is one."""

from __future__ import annotations

import pytest

from headway.core.check import read_reference

JOB = "0198c0de-0000-7000-8000-000000000001"


def test_reference_names_a_job_and_a_run() -> None:
    assert read_reference(f"{JOB}:12") == (JOB, 12)


@pytest.mark.parametrize(
    "text",
    [
        *("", JOB, f"{JOB}:", f"{JOB}:x", f"{JOB}:-1", f"{JOB}:1:2", f"{JOB}: 1", f"{JOB}:²"),
        *(f"{JOB}:1234567890", f"{JOB.upper()}:1", "1:1", f"{JOB[:-1]}:1", f"x{JOB}:1"),
    ],
)
def test_text_that_is_not_a_reference_is_none(text: str) -> None:
    assert read_reference(text) is None
