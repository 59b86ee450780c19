from __future__ import annotations

from headway.contract.outcomes import Failed
from headway.core.gates.spec import GateUse
from headway.core.job import JobPolicy
from headway.core.retry import RetryPolicy
from tests.cli.conftest import Headway
from tests.cli.gates import declare_line
from tests.cli.seeding import claim, enqueue, new_job, settle


def test_job_is_shown_with_its_runs_and_trail(headway: Headway):
    declare_line()
    use = GateUse(name="line", template="line", shared=True)
    (made,) = enqueue(new_job(gates=(use,), args=b'{"phone": "+15550100"}', subject="\x1b[2J"))
    (started,) = claim("main")
    settle(Failed(made, started.run, error="boom\nat line 3", after_ms=3_600_000))
    headway("cancel", made, "--reason", "not wanted")
    ran = headway("job", made)
    assert ran.code == 0
    assert all(line.isprintable() for line in ran.out.splitlines())
    for part in ('{"phone": "+15550100"}', "boom", "line", "not wanted", "the tester", "cancelled"):
        assert part in ran.out


def test_long_error_is_one_line_in_tables_and_complete_at_the_end(headway: Headway):
    (made,) = enqueue(new_job())
    (started,) = claim("main")
    error = "ValueError: boom\nTraceback:\n  File \x1b[2J, line 3\nValueError: boom\n"
    settle(Failed(made, started.run, error=error, after_ms=3_600_000))
    lines = headway("job", made).out.splitlines()
    assert sum("Traceback" in line for line in lines) == 1
    assert lines[-3:] == ["Traceback:", "  File \\x1b[2J, line 3", "ValueError: boom"]


def test_attempts_are_shown_with_their_maximum_if_the_kind_has_one(headway: Headway):
    few, many = (JobPolicy(retry=RetryPolicy(attempts=n)) for n in (3, 100_000))
    bounded, unbounded = enqueue(new_job(policy=few), new_job(policy=many))
    assert "attempt    0 of 3\n" in headway("job", bounded).out
    assert "attempt    0\n" in headway("job", unbounded).out


def test_job_as_json_has_its_runs_with_permits_and_its_trail(headway: Headway):
    declare_line()
    use = GateUse(name="line", template="line", shared=True)
    (made,) = enqueue(new_job(gates=(use,)))
    claim("main")
    headway("cancel", made, "--reason", "not wanted")
    job = headway("job", made, "--json").document
    assert job["runs"][0]["permits"] == {"line": ""}
    assert job["cancel_requested"] is True
    assert [note["reason"] for note in job["trail"]] == ["not wanted"]


def test_unknown_job_is_a_caller_error(headway: Headway):
    headway("migrate")
    for command in ("job", "why"):
        ran = headway(command, "nope")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("headway: there is no job 'nope' (")
