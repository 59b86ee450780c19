"""The exporter: sends spans by OTLP over HTTP, as the standard variables say."""

from __future__ import annotations

import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler

from headway.runtime.tracing.sampling import JobRatio, ratio_of


def otlp_provider(service: str) -> TracerProvider:
    """Send what is recorded in batches, on a thread of its own; the rest when it is shut down.

    Args:
        service: the name of this program, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES
            has one.

    Returns:
        A provider of tracers, configured by OTEL_EXPORTER_OTLP_ENDPOINT,
        OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER, OTEL_BSP_* and the other standard
        variables.

    Raises:
        InvalidValue: OTEL_TRACES_SAMPLER_ARG is not a ratio.
    """
    ratio = ratio_of(os.environ)
    sampler: Sampler | None = None if ratio is None else ParentBased(JobRatio(ratio))
    named = OTELResourceDetector().detect()
    resource = Resource.create({SERVICE_NAME: service} | dict(named.attributes))
    provider = TracerProvider(sampler=sampler, resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
