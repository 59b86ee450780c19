from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import headway as hw
from headway.cli.commands.files import Import
from headway.contract.claims import ClaimRequest
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.core.errors import StoreUnavailable
from headway.stores.memory.store import MemoryStore
from headway.testing.clock import FakeClock
from tests.cli.conftest import Headway

APP = """
from __future__ import annotations
import headway as hw
from headway.runtime.inserting import CancelledJob

app = hw.App()

@app.job(lane="calls", key="{phone}")
async def call(job: hw.Job, phone: str):
    pass

@app.importer("calls")
def calls(row):
    job = call.make(phone=row["phone"])
    yield CancelledJob(job, row["off"]) if "off" in row else job
    for n in range(row.get("more", 0)):
        yield call.make(phone=f"{row['phone']}-{n}")
    if row.get("junk"):
        yield "junk"
"""


@pytest.fixture(autouse=True)
def calls(folder: Path) -> None:
    folder.joinpath("import_calls.py").write_text(APP)


def write(folder: Path, *rows: object) -> None:
    texts = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    folder.joinpath("rows.jsonl").write_text("\n".join(texts) + "\n")


def bring_in(headway: Headway, *options: str):
    return headway("import", "rows.jsonl", "--app", "import_calls.py", *options)


def test_each_row_creates_its_jobs(headway: Headway, folder: Path):
    write(folder, {"phone": "1"}, {"phone": "2", "more": 2}, "", {"phone": "3"})
    ran = bring_in(headway)
    assert (ran.code, ran.out) == (0, "3 rows, 5 jobs made\n")
    jobs = headway("jobs", "--json").document["jobs"]
    assert [job["args"]["phone"] for job in jobs] == ["1", "2", "2-0", "2-1", "3"]


def test_bad_row_is_reported_by_line_number_and_the_others_continue(headway: Headway, folder: Path):
    write(
        folder,
        {"phone": "1"},
        "no json",
        {"fone": "x"},
        "",
        {"phone": 5},
        {"phone": "2", "junk": True},
        {"phone": "3", "more": 1000},
        {"phone": "\x1b[2J", "junk": 1},
        {"phone": "4"},
        {"phone": "5", "more": 999},
    )
    ran = bring_in(headway)
    assert (ran.code, ran.out) == (1, "9 rows, 1002 jobs made, 6 rows refused\n")
    told = [line.split(":")[0] for line in ran.err.splitlines()]
    assert told == ["line 2", "line 3", "line 5", "line 6", "line 7", "line 8"]
    jobs = headway("jobs", "--json", "--limit", "3").document["jobs"]
    assert [job["args"]["phone"] for job in jobs] == ["1", "4", "5"]


def test_refused_rows_are_counted_in_json_and_accepted_with_partial(headway: Headway, folder: Path):
    write(folder, {"phone": "1"}, "no json")
    ran = bring_in(headway, "--json", "--lenient")
    assert (ran.code, ran.err) == (0, "")
    assert ran.document["rows"] == 2
    assert ran.document["created"] == 1
    assert [row["line"] for row in ran.document["refused"]] == [2]


def test_row_refused_by_the_store_spoils_no_other_row_of_its_step(headway: Headway, folder: Path):
    headway("send", "call", "phone=2", "--key", "2", "--lane", "elsewhere")
    # The store refuses the second row after the fourth has been read.
    write(folder, {"phone": "1"}, {"phone": "2"}, {"phone": "3"}, "no json")
    ran = bring_in(headway, "--json")
    assert ran.code == 1
    assert ran.document["created"] == 2
    assert [row["line"] for row in ran.document["refused"]] == [2, 4]


def test_repeated_import_creates_no_job_twice(headway: Headway, folder: Path):
    write(folder, {"phone": "1"}, {"phone": "2"})
    bring_in(headway)
    assert bring_in(headway).out == "2 rows, 0 jobs made, 2 there already\n"


def test_jobs_of_cancelled_rows_are_recorded_with_author_and_reason(headway: Headway, folder: Path):
    write(folder, {"phone": "1", "off": "no air time"}, {"phone": "2"})
    assert bring_in(headway).out == "2 rows, 2 jobs made, 1 cancelled\n"
    assert bring_in(headway).out == "2 rows, 0 jobs made, 2 there already\n"
    (job,) = headway("jobs", "--json", "--state", "cancelled").document["jobs"]
    (note,) = headway("job", job["id"], "--json").document["trail"]
    assert (note["author"], note["reason"]) == ("the tester", "no air time")


async def test_job_that_is_cancelled_at_once_never_starts_even_if_the_import_is_killed():
    """Of 5000 such jobs imported beside a worker 2020 were run, and then cancelled."""

    class Killed(MemoryStore):
        is_alive = False

        async def act(self, request: ActRequest) -> list[ActReply]:
            if self.is_alive:
                return await super().act(request)
            raise StoreUnavailable("the import is killed here")

    clock = FakeClock()
    store, app = Killed(clock), hw.App("memory://")

    @app.job(lane="calls", key="{phone}")
    async def call(job: hw.Job, phone: str) -> None: ...

    def calls(row: dict[str, str]) -> Iterator[hw.NewJob | hw.CancelledJob]:
        yield hw.CancelledJob(call.make(phone=row["phone"]), "opted out")
        yield call.make(phone="2")

    def work() -> Import:
        return Import(store, calls, "ada", lambda _: None)

    rows = [b'{"phone":"1"}']
    with pytest.raises(StoreUnavailable):
        await work().run(rows, lambda *_: None)
    started: list[bytes] = []
    for number, days in enumerate((0, 1, 4000), start=1):
        clock.advance(days * 86_400_000)
        claim = ClaimRequest(worker=f"w{number}", request=1, lanes=(("calls", 1),), n=9, free=9)
        reply = await store.claim(claim)
        started += [one.args for one in reply.jobs]
        settled = tuple(Succeeded(one.id, one.run) for one in reply.jobs)
        await store.settle(SettleRequest(worker=f"w{number}", outcomes=settled))
    assert started == [b'{"phone":"2"}']
    store.is_alive = True
    tally = await work().run(rows, lambda *_: None)
    assert tally.cancelled == 1
    await store.close()


@pytest.mark.parametrize("reason", [None, 5, "nul\0", "x" * 80_001], ids=[*"nmul"])
def test_row_to_cancel_with_an_invalid_reason_is_refused_and_creates_nothing(
    headway: Headway, folder: Path, reason: object
):
    write(folder, {"phone": "1", "off": reason}, {"phone": "2"}, {"phone": "3", "off": "sold"})
    ran = bring_in(headway, "--json")
    tally = json.loads(ran.out)
    assert (tally["rows"], tally["created"], tally["existing"], tally["cancelled"]) == (3, 2, 0, 1)
    assert [row["line"] for row in tally["refused"]] == [1]
    jobs = headway("jobs", "--json").document["jobs"]
    assert [(job["args"]["phone"], job["state"]) for job in jobs] == [
        ("2", "waiting"),
        ("3", "cancelled"),
    ]


@pytest.mark.parametrize("author", ["a" * 513, "\udcff"])
def test_author_that_no_store_accepts_is_refused_before_any_job_is_created(
    headway: Headway, folder: Path, author: str
):
    write(folder, {"phone": "1"}, {"phone": "3", "off": "sold"})
    ran = bring_in(headway, "--author", author)
    assert (ran.code, ran.out) == (2, "")
    headway("migrate")
    assert headway("jobs", "--json").document["jobs"] == []


def test_byte_order_mark_of_a_file_is_passed_over(headway: Headway, folder: Path):
    write(folder, "\ufeff" + json.dumps({"phone": "1"}), {"phone": "2"})
    assert bring_in(headway).out == "2 rows, 2 jobs made\n"


def test_many_rows_are_imported_in_steps(headway: Headway, folder: Path):
    write(folder, *({"phone": str(n), "more": n % 3} for n in range(2000)))
    assert bring_in(headway).out == "2000 rows, 3999 jobs made\n"


async def test_large_rows_are_imported_in_smaller_steps():
    """A step of 1,000 jobs with 900 kB each was too large for Redis and for servers."""
    steps: list[int] = []
    counts: list[int] = []

    class Counted(MemoryStore):
        async def enqueue(self, jobs: Sequence[hw.NewJob]) -> list[hw.Sent]:
            steps.append(sum(len(job.args) for job in jobs))
            counts.append(len(jobs))
            return await super().enqueue(jobs)

    store, app = Counted(FakeClock()), hw.App("memory://")

    @app.job
    async def call(text: str) -> None: ...

    def calls(row: str) -> list[hw.NewJob]:
        return [call.make(text=row)]

    rows = [b'"%s"' % (b"x" * 900_000)] * 20
    tally = await Import(store, calls, "ada", lambda _: None).run(rows, lambda *_: None)
    assert (tally.rows, tally.created) == (20, 20)
    assert max(steps) < 8_000_000
    assert len(steps) == 3
    counts.clear()
    small = await Import(store, calls, "ada", lambda _: None).run([b'""'] * 2_050, lambda *_: None)
    await store.close()
    assert small.created == 2_050
    assert counts == [1_000, 1_000, 50]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["nowhere.jsonl", "--app", "import_calls.py"], "nowhere.jsonl cannot be read"),
        ([".", "--app", "import_calls.py"], "cannot be read"),
        (["rows.jsonl", "--app", "import_calls.py", "--as", "mails"], "no importer 'mails'"),
        (["rows.jsonl"], "no importers (pass --app"),
        (["rows.jsonl", "--app", "nowhere.py"], "there is no file nowhere.py"),
    ],
)
def test_import_that_cannot_start_is_a_caller_error(
    headway: Headway, folder: Path, line: list[str], said: str
):
    write(folder, {"phone": "1"})
    ran = headway("import", *line)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize(
    ("returns", "named"),
    [
        ('call.make(phone=row["phone"])', "NewJob"),
        ('CancelledJob(call.make(phone=row["phone"]), "off")', "CancelledJob"),
        ("None", "NoneType"),
        ("row", "dict"),
        ("'text'", "str"),
    ],
)
def test_importer_that_returns_no_list_is_one_error(
    headway: Headway, folder: Path, returns: str, named: str
):
    single = APP.replace(
        "def calls(row):", f"def calls(row):\n    return {returns}\ndef unused(row):"
    )
    folder.joinpath(f"import_{named}.py").write_text(single)
    write(folder, *({"phone": str(n)} for n in range(20)))
    ran = headway("import", "rows.jsonl", "--app", f"import_{named}.py")
    assert ran.code == 2
    assert ran.err.count("\n") == 2
    assert "stopped after 0 jobs were made" in ran.err
    assert f"line 1: the importer returned {named}, not a list of jobs" in ran.err


def test_asynchronous_importer_is_one_error(headway: Headway, folder: Path):
    folder.joinpath("import_later.py").write_text(
        APP.replace("def calls(row):", "async def calls(row):\n    return []\ndef unused(row):")
    )
    write(folder, {"phone": "1"}, {"phone": "2"})
    ran = headway("import", "rows.jsonl", "--app", "import_later.py")
    assert ran.code == 2
    assert "line 1: the importer returned coroutine" in ran.err
