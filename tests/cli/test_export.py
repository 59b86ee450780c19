from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from headway.cli.commands.files import output
from headway.contract.outcomes import Succeeded
from headway.contract.views import JobView, NoteView, RunView
from tests.cli.conftest import Headway
from tests.cli.seeding import claim, enqueue, new_job, settle

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "export.md"


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_export_is_a_header_and_one_job_per_line_in_order_of_arrival(headway: Headway):
    ids = enqueue(*(new_job() for _ in range(3)))
    header, *jobs = lines(headway("export").out)
    assert (header["format"], header["version"]) == ("headway-export", 1)
    assert isinstance(header["exported_at"], int)
    assert [job["id"] for job in jobs] == ids


def test_every_job_is_exported_once_over_many_pages(headway: Headway):
    for _ in range(3):
        enqueue(*(new_job() for _ in range(800)))
    _, *jobs = lines(headway("export", "--no-trail").out)
    assert len({job["id"] for job in jobs}) == len(jobs) == 2400


def test_exported_job_has_its_runs_and_its_trail(headway: Headway):
    done, cancelled = enqueue(new_job(), new_job())
    (started,) = claim("main")
    settle(Succeeded(done, started.run, result=b'{"sid": "CA1"}'))
    headway("cancel", cancelled, "--reason", "no air time")
    _, first, second = lines(headway("export").out)
    assert first["result"] == {"sid": "CA1"}
    (run,) = first["runs"]
    assert (run["run"], run["outcome"]) == (1, "succeeded")
    assert [note["reason"] for note in second["trail"]] == ["no air time"]
    _, first, second = lines(headway("export", "--no-trail").out)
    assert "trail" not in second


def test_format_page_names_every_field(headway: Headway):
    named = set(re.findall(r"`([a-z_]+)`", PAGE.read_text()))
    for view in (JobView, RunView, NoteView):
        assert {field.name for field in fields(view)} <= named
    enqueue(new_job())
    _, job = lines(headway("export").out)
    assert isinstance(job["policy"], dict)
    assert job["policy"].keys() <= named


def test_arguments_with_line_breaks_stay_on_one_line(headway: Headway):
    enqueue(new_job(args=b'{\n  "a": "x\\ny",\r\n  "b": 2\n}'), new_job(args=b"no json \xff\n"))
    _, first, second = lines(headway("export").out)
    assert first["args"] == {"a": "x\ny", "b": 2}
    assert second["args"] == "no json \ufffd\n"


def test_filter_exports_only_matching_jobs(headway: Headway):
    wanted, _ = enqueue(new_job(lane="a"), new_job(lane="b"))
    _, *jobs = lines(headway("export", "--lane", "a").out)
    assert [job["id"] for job in jobs] == [wanted]


def test_file_is_written_completely_and_never_replaced_without_request(
    headway: Headway, folder: Path
):
    enqueue(new_job())
    ran = headway("export", "--out", "jobs.jsonl")
    assert (ran.code, ran.out) == (0, "")
    assert len(lines(folder.joinpath("jobs.jsonl").read_text())) == 2
    enqueue(new_job())
    ran = headway("export", "--out", "jobs.jsonl")
    assert ran.code == 2
    assert "exists" in ran.err
    assert len(lines(folder.joinpath("jobs.jsonl").read_text())) == 2
    assert headway("export", "--out", "jobs.jsonl", "--force").code == 0
    assert len(lines(folder.joinpath("jobs.jsonl").read_text())) == 3


def test_device_or_pipe_is_refused_instead_of_replaced(headway: Headway, folder: Path):
    enqueue(new_job())
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    refused = headway("export", "--out", "pipe", "--force")
    assert refused.code == 2
    assert "not a regular file" in refused.err
    assert "exists" in headway("export", "--out", "pipe").err
    assert pipe.is_fifo()


@pytest.mark.parametrize("place", ["--out part.jsonl", "> part.jsonl"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_export_that_a_file_cannot_hold_fails(place: str, unbuffered: str):
    enqueue(new_job(args=b'"%s"' % (b"x" * 900_000)))
    python = f"PYTHONUNBUFFERED={unbuffered} exec {sys.executable}"
    line = f"ulimit -f 100; {python} -m headway export {place}"
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert ran.returncode == 4
    assert "cannot be written: File too large" in ran.stderr


def test_empty_file_is_not_replaced_without_request(headway: Headway, folder: Path):
    enqueue(new_job())
    empty = folder / "jobs.jsonl"
    empty.touch()
    ran = headway("export", "--out", "jobs.jsonl")
    assert ran.code == 2
    assert "exists" in ran.err
    assert empty.read_bytes() == b""


def test_file_that_cannot_be_created_is_an_error_and_leaves_nothing(headway: Headway, folder: Path):
    enqueue(new_job())
    folder.joinpath("a-file").touch()
    for place in ("nowhere/jobs.jsonl", "a-file/jobs.jsonl"):
        ran = headway("export", "--out", place)
        assert ran.code == 2
        assert "cannot be written" in ran.err
    assert [one.name for one in folder.iterdir() if "jsonl" in one.name] == []


def test_standard_output_has_no_character_that_a_terminal_would_interpret(
    headway: Headway, folder: Path
):
    text = "\x9b31m \x85 \u202e \u2028 é"
    enqueue(new_job(args=json.dumps({"a": text}, ensure_ascii=False).encode()))
    out = headway("export").out
    assert out.replace("\n", "").isprintable()
    assert lines(out)[1]["args"] == {"a": text}
    headway("export", "--out", "jobs.jsonl")
    assert text in folder.joinpath("jobs.jsonl").read_text(encoding="utf-8")


def test_exports_to_one_file_at_once_do_not_mix(folder: Path):
    path = folder / "jobs.jsonl"
    with output(path, force=True) as first:
        first(b"first\n" * 3)
        with output(path, force=True) as second:
            second(b"second\n")
        assert path.read_bytes() == b"second\n"
    assert path.read_bytes() == b"first\n" * 3
    assert [one.name for one in folder.iterdir() if "jsonl" in one.name] == ["jobs.jsonl"]


def test_failed_export_leaves_no_file(folder: Path):
    with pytest.raises(ValueError, match="lost"), output(folder / "jobs.jsonl", force=False):
        raise ValueError("lost")
    assert [one.name for one in folder.iterdir() if "jsonl" in one.name] == []
