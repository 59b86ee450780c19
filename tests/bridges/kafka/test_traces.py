"""A message's traceparent becomes a link of its job's trace."""

from __future__ import annotations

from uuid import UUID

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import headway as hw
from headway.bridges.kafka.message import EnqueueSink, Incoming, JobReader
from headway.contract.views import JobsQuery
from headway.runtime.tracing.trace import trace

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_each_job_of_a_batch_is_linked_to_the_span_of_its_message() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = hw.App("memory://")
    trace(app, provider)
    given = (f"00-{TRACE}-{SPAN}-01".encode(), b"00-nonsense", None)
    batch = [
        Incoming("t", 0, n, None, b"{}", {} if one is None else {"traceparent": one}, 0)
        for n, one in enumerate(given)
    ]
    async with app:
        await EnqueueSink(app, JobReader(kind="noop")).put(batch)
        page = await app.store.read(JobsQuery(limit=10))
        job_of = {UUID(row.id).int: row.key for row in page.rows}
    links = {
        job_of[span.context.trace_id]: [
            (f"{one.context.trace_id:032x}", f"{one.context.span_id:016x}") for one in span.links
        ]
        for span in exporter.get_finished_spans()
    }
    assert links == {"t-0-0-0": [(TRACE, SPAN)], "t-0-1-0": [], "t-0-2-0": []}
