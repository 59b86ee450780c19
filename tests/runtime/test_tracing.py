"""Each job has its own trace, propagated from the sending process to the one that finishes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased
from opentelemetry.trace import SpanKind, StatusCode, get_current_span
from psycopg import AsyncConnection

import headway as hw
from headway.contract import outcomes
from headway.contract.claims import ClaimRequest
from headway.contract.extensions import InsertsWithin, Repairable, SendsAhead
from headway.contract.outcomes import Outcome, SettleRequest, Succeeded
from headway.runtime.tracing.recorder import OUTCOME_NAMES
from headway.runtime.tracing.sampling import JobRatio, ratio_of
from headway.runtime.tracing.trace import trace
from headway.stores import open_store
from tests.runtime.observed_store import ObservedStore, working
from tests.servers.stores import EVERYWHERE, NewUrl


class Spans:
    """Spans recorded by a tracer provider of its own."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def of(self, job: str) -> dict[str, list[ReadableSpan]]:
        """Return the spans of a job's trace, grouped by the first word of their names."""
        found: dict[str, list[ReadableSpan]] = {}
        for span in self.exporter.get_finished_spans():
            if span.context.trace_id == UUID(job).int:
                found.setdefault(span.name.split()[0], []).append(span)
        return found


@pytest.fixture
async def watched() -> AsyncIterator[ObservedStore]:
    store = open_store("memory://")
    yield ObservedStore(store)
    await store.close()


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def traced(watched: ObservedStore, spans: Spans) -> hw.App:
    app = hw.App(store=watched)
    trace(app, spans.provider)
    return app


async def test_jobs_trace_has_its_id_and_spans_enqueue_claim_and_settle(
    traced: hw.App, watched: ObservedStore, spans: Spans
):
    @traced.job(lane="calls")
    async def call(job: hw.Job, phone: str) -> None: ...

    sent = await traced.send_async(call, phone="+1555 secret", tenant="acme")
    async with working(traced) as worker:
        await watched.ends(sent.id)
        name = worker.id
    found = spans.of(sent.id)
    assert {name: len(some) for name, some in found.items()} == {
        "enqueue": 1,
        "claim": 1,
        "run": 1,
        "settle": 1,
    }
    (enqueue,), (claim,), (run,), (settle,) = (found[one] for one in found)
    assert enqueue.parent is None
    assert (claim.parent.span_id, run.parent.span_id, settle.parent.span_id) == (
        enqueue.context.span_id,
        claim.context.span_id,
        claim.context.span_id,
    )
    assert [one.kind for one in (enqueue, claim, run, settle)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    assert claim.name == "claim calls"
    assert claim.attributes["headway.waited_ms"] >= 0
    assert dict(claim.attributes) == {
        "messaging.system": "headway",
        "messaging.operation.name": "claim",
        "messaging.operation.type": "receive",
        "messaging.message.id": sent.id,
        "messaging.destination.name": "calls",
        "messaging.message.body.size": len(b'{"phone":"+1555 secret"}'),
        "messaging.client.id": name,
        "headway.kind": "call",
        "headway.run": 1,
        "headway.attempt": 1,
        "headway.gated": False,
        "headway.tenant": "acme",
        "headway.waited_ms": claim.attributes["headway.waited_ms"],
    }
    assert settle.attributes["headway.outcome"] == "succeeded"
    assert settle.attributes["headway.verdict"] == "done"
    assert "secret" not in "".join(span.to_json() for some in found.values() for span in some)


async def test_sender_and_job_trace_are_linked_both_ways(traced: hw.App, spans: Spans):
    @traced.job()
    async def work(job: hw.Job) -> None: ...

    with spans.provider.get_tracer("shop").start_as_current_span("order") as order:
        sent = await traced.send_async(work)
    (enqueue,) = spans.of(sent.id)["enqueue"]
    assert enqueue.context.trace_id != order.get_span_context().trace_id
    assert [link.context.span_id for link in enqueue.links] == [order.get_span_context().span_id]
    (ended,) = [one for one in spans.exporter.get_finished_spans() if one.name == "order"]
    assert [link.context.trace_id for link in ended.links] == [UUID(sent.id).int]


async def test_spans_of_a_handler_are_children_of_its_run_even_in_threads(
    traced: hw.App, watched: ObservedStore, spans: Spans
):
    tracer = spans.provider.get_tracer("mine")

    @traced.job()
    async def awaits(job: hw.Job) -> None:
        with tracer.start_as_current_span("inner"):
            pass

    @traced.job()
    def blocks(job: hw.Job) -> None:
        with tracer.start_as_current_span("inner"):
            pass

    sent = [await traced.send_async(kind) for kind in (awaits, blocks)]
    async with working(traced, concurrency=1):
        for one in sent:
            await watched.ends(one.id)
    for one in sent:
        found = spans.of(one.id)
        assert found["inner"][0].parent.span_id == found["run"][0].context.span_id
    assert not get_current_span().get_span_context().is_valid


async def test_each_attempt_is_a_claim_of_the_same_trace_and_its_error_is_recorded(
    traced: hw.App, watched: ObservedStore, spans: Spans
):
    @traced.job(retry=hw.Backoff(attempts=2, base="1ms", jitter="none"))
    async def fails(job: hw.Job) -> None:
        message = "no answer"
        raise ConnectionError(message)

    sent = await traced.send_async(fails)
    async with working(traced):
        await watched.ends(sent.id)
    found = spans.of(sent.id)
    assert [one.attributes["headway.run"] for one in found["claim"]] == [1, 2]
    for run, settle in zip(found["run"], found["settle"], strict=True):
        assert run.status.status_code is StatusCode.ERROR
        assert run.status.description == "ConnectionError: no answer"
        assert run.attributes["error.type"] == "ConnectionError"
        (event,) = run.events
        assert event.attributes["exception.message"] == "no answer"
        assert settle.attributes["headway.outcome"] == "failed"
        assert settle.status.description == "ConnectionError: no answer"


async def test_handler_that_raises_dead_is_an_error_without_a_traceback(
    traced: hw.App, watched: ObservedStore, spans: Spans
):
    @traced.job()
    async def work(job: hw.Job) -> None:
        raise hw.Dead("bad number")

    sent = await traced.send_async(work)
    async with working(traced):
        await watched.ends(sent.id)
    (run,) = spans.of(sent.id)["run"]
    assert (run.status.description, run.events) == ("bad number", ())
    assert spans.of(sent.id)["settle"][0].attributes["headway.outcome"] == "dead"


async def test_hand_over_and_the_signal_that_ends_it_are_in_the_trace(
    traced: hw.App, watched: ObservedStore, spans: Spans
):
    @traced.job()
    async def dial(job: hw.Job) -> None:
        await job.hand_over("call-1")

    sent = await traced.send_async(dial)
    async with working(traced):
        await watched.becomes(sent.id, "awaiting")
        await traced.signal_async("call-1", event="e1", final="succeeded")
        await traced.signal_async("unheard of", event="e2", note="SENT")
    found = spans.of(sent.id)
    assert found["settle"][0].attributes["headway.outcome"] == "handed_over"
    (signal,) = found["signal"]
    assert signal.parent.span_id == found["enqueue"][0].context.span_id
    assert (signal.attributes["headway.answer"], signal.attributes["headway.state"]) == (
        "applied",
        "succeeded",
    )


async def test_processes_that_share_only_the_store_make_one_trace(watched: ObservedStore):
    sending, running = Spans(), Spans()
    apps = [hw.App(store=watched), hw.App(store=watched)]
    for app, spans in zip(apps, (sending, running), strict=True):
        trace(app, spans.provider)

        @app.job()
        async def work(job: hw.Job) -> None: ...

    sent = await apps[0].send_async("work")
    async with working(apps[1]):
        await watched.ends(sent.id)
    (enqueue,) = sending.of(sent.id)["enqueue"]
    (claim,) = running.of(sent.id)["claim"]
    assert claim.parent.span_id == enqueue.context.span_id
    assert claim.parent.is_remote


async def test_settlement_repeated_after_a_lost_reply_is_traced_once(traced: hw.App, spans: Spans):
    sent = await traced.send_async("noop")
    request = ClaimRequest(worker="w", request=1, lanes=(("main", 1),))
    (job,) = (await traced.store.claim(request)).jobs
    settle = SettleRequest(worker="w", outcomes=(Succeeded(job.id, job.run),))
    verdicts = [await traced.store.settle(settle) for _ in range(2)]
    assert verdicts == [["done"], ["already"]]
    assert len(spans.of(sent.id)["settle"]) == 1


async def test_repeated_enqueue_starts_no_second_trace(traced: hw.App, spans: Spans):
    @traced.job()
    async def work(job: hw.Job) -> None: ...

    first = await traced.send_async(work, key="k")
    again = await traced.send_async(work, key="k")
    assert again.id == first.id
    begun, repeated = spans.of(first.id)["enqueue"]
    assert (begun.parent, repeated.parent.span_id) == (None, begun.context.span_id)
    assert [one.attributes["headway.created"] for one in (begun, repeated)] == [True, False]


async def test_follow_up_of_a_run_has_a_trace_linked_to_its_settlement(
    traced: hw.App, watched: ObservedStore, spans: Spans
):
    @traced.job()
    async def child(job: hw.Job) -> None: ...

    made: list[str] = []

    @traced.job()
    async def parent(job: hw.Job) -> None:
        follower = child.make()
        made.append(follower.id)
        job.then(follower)

    sent = await traced.send_async(parent)
    async with working(traced):
        await watched.ends(sent.id)
        await watched.ends(made[0])
    (enqueue,) = spans.of(made[0])["enqueue"]
    (settle,) = spans.of(sent.id)["settle"]
    assert enqueue.links[0].context.span_id == settle.context.span_id


async def test_sampled_jobs_are_traced_completely(watched: ObservedStore):
    spans = Spans(sampler=ParentBased(JobRatio(0.3)))
    app = hw.App(store=watched)
    trace(app, spans.provider)

    @app.job()
    async def work(job: hw.Job) -> None: ...

    sent = await app.send_many_async(work.make() for _ in range(300))
    async with working(app):
        for one in sent:
            await watched.ends(one.id)
    sizes = [sum(map(len, spans.of(one.id).values())) for one in sent]
    assert set(sizes) == {0, 4}
    assert 50 < sizes.count(4) < 130


def test_ratio_of_the_standard_variables_applies_to_jobs():
    asked = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    assert ratio_of(asked) == 0.25
    assert ratio_of({"OTEL_TRACES_SAMPLER": "always_off"}) is None
    with pytest.raises(hw.InvalidValue, match="OTEL_TRACES_SAMPLER_ARG is 'half'"):
        ratio_of(asked | {"OTEL_TRACES_SAMPLER_ARG": "half"})


async def test_app_with_an_open_store_cannot_be_traced_any_more(spans: Spans):
    app = hw.App("memory://")
    async with app:
        with pytest.raises(hw.InvalidValue, match="already opened"):
            trace(app, spans.provider)


async def test_traced_store_can_do_all_that_the_store_can(
    spans: Spans, new_url: NewUrl, tmp_path: Path
):
    for kind in EVERYWHERE:
        store = open_store(new_url(kind))
        app = hw.App(store=store)
        trace(app, spans.provider)
        for door in (InsertsWithin, Repairable, SendsAhead):
            assert isinstance(app.store, door) is isinstance(store, door), (kind, door)
        if isinstance(app.store, Repairable):
            assert await app.store.suspicion() is None
        await store.close()


async def test_job_of_a_callers_transaction_is_traced(spans: Spans, new_url: NewUrl):
    url = new_url("postgresql")
    app = hw.App(url)
    trace(app, spans.provider)

    @app.job()
    async def work(job: hw.Job) -> None: ...

    async with app, await AsyncConnection.connect(url.partition("?")[0]) as connection:
        sent = await app.send_async(work, connection=connection)
        await connection.commit()
    assert len(spans.of(sent.id)["enqueue"]) == 1


def test_untraced_program_loads_no_opentelemetry():
    code = (
        "import sys, headway as hw, headway.cli.commands.worker\n"
        "app = hw.App('memory://'); app.send('noop'); app.close()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


# ------------------------------------------------------------------------------- the command

EMPTY_APP = "import headway as hw\napp = hw.App()\n"


class Collector(HTTPServer):
    """Receives traces by OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.spans: list[Any] = []
        self.services: set[str] = set()


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.server.services.add(names["service.name"])
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(ExportTraceServiceResponse().SerializeToString())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _headway(folder: Path, *line: str, before: str = "", **environment: str) -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    code = f"{before}\nimport sys\nfrom headway.cli.main import call\nsys.exit(call({line!r}))"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_worker_sends_its_traces_by_otlp_as_the_standard_variables_say(
    tmp_path: Path, collector: Collector
):
    sent = json.loads(_headway(tmp_path, "send", "noop", "--json").stdout)
    (tmp_path / "empty.py").write_text(EMPTY_APP)
    ran = _headway(
        tmp_path,
        "worker",
        "empty.py",
        "--drain",
        HEADWAY_TRACES="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.server_port}",
        OTEL_SERVICE_NAME="shop",
    )
    assert ran.returncode == 0, ran.stderr
    assert collector.services == {"shop"}
    assert {span.name for span in collector.spans} == {"claim main", "run main", "settle"}
    assert {span.trace_id.hex() for span in collector.spans} == {UUID(sent["jobs"][0]["id"]).hex}


def test_tracing_without_the_extra_is_refused_with_what_to_install(tmp_path: Path):
    (tmp_path / "empty.py").write_text(EMPTY_APP)
    ran = _headway(
        tmp_path,
        "worker",
        "empty.py",
        "--drain",
        before="import sys; sys.modules['opentelemetry.trace'] = None",
        HEADWAY_TRACES="1",
    )
    assert ran.returncode == 2
    assert "pip install 'headway[otel]'" in ran.stderr


def test_every_outcome_has_a_name_in_traces() -> None:
    classes = [one for one in vars(outcomes).values() if isinstance(one, type)]
    assert set(OUTCOME_NAMES) == {one for one in classes if issubclass(one, Outcome)} - {Outcome}
