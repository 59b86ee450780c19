"""Traces over HTTP: spans of a request are linked to its sender's."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import headway as hw
from headway.contract.definitions import Role
from headway.runtime.tracing.trace import trace
from tests.server.rig import serving

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_jobs_of_a_request_are_linked_to_the_span_that_sent_it():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = hw.App("memory://")
    trace(app, provider)
    async with app, serving(app=app, traces=True) as rig:

        async def send(**headers: str) -> Any:
            body = {"kind": "noop"}
            reply = await rig.call(Role.PRODUCER, "POST", "/v1/jobs", body, headers=headers)
            (span,) = exporter.get_finished_spans()
            exporter.clear()
            assert span.context.trace_id == UUID(reply.json()["id"]).int
            return span

        linked = await send(traceparent=f"00-{TRACE}-{SPAN}-01")
        assert [
            (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}")
            for link in linked.links
        ] == [(TRACE, SPAN)]
        for headers in ({}, {"traceparent": "00-nonsense-x-01"}):
            assert not (await send(**headers)).links


async def test_claim_and_settlement_over_http_are_in_the_trace_of_the_job():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = hw.App("memory://")
    trace(app, provider)
    async with app, serving(app=app) as rig:
        sent = await rig.send(lane="mail")
        asked = {"worker": "w", "lanes": "mail"}
        claimed = (await rig.call(Role.WORKER, "POST", "/v1/claims", asked)).json()
        run = claimed["jobs"][0]["run"]
        outcomes = [{"job": sent, "run": run, "outcome": "succeeded"}]
        body = {"worker": "w", "outcomes": outcomes}
        reply = await rig.call(Role.WORKER, "POST", "/v1/settlements", body)
        assert reply.status_code == 200, reply.text
    names = [
        span.name
        for span in exporter.get_finished_spans()
        if span.context.trace_id == UUID(sent).int
    ]
    assert names == ["enqueue mail", "claim mail", "settle"]
