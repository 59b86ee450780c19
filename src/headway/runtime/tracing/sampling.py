"""Sampling and export of spans."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from headway.core.errors import InvalidValue

_BITS = 64
_RATIO = "traceidratio"
_PARENT_BASED = "parentbased_traceidratio"


class JobRatio(Sampler):
    """Records a fraction of all jobs; every process decides the same for a job.

    The SDK's ratio sampler compares the 64 low bits of the trace id. In a UUID the highest two of
    these are fixed, so it would record no job for ratios below one half, and every job above three
    quarters. Moreover, ids that are created within one millisecond differ in the lowest bits only.
    So this sampler compares a hash of the id.

    Source: RFC 9562, sections 4.1 and 6.2.
    """

    def __init__(self, ratio: float) -> None:
        """Create a sampler.

        Args:
            ratio: 0 to 1.

        Raises:
            InvalidValue: the ratio is out of range.
        """
        if not 0 <= ratio <= 1:
            message = f"{ratio} is not a valid sampling ratio of traces (0 to 1)"
            raise InvalidValue(message, hint="pass 0 for none of them, 1 for all")
        self._ratio = ratio
        self._bound = round(ratio * (1 << _BITS))

    def should_sample(  # noqa: PLR0913, PLR0917  (its base's parameters)
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Return whether the trace is recorded."""
        del parent_context, name, kind, links
        mixed = blake2b(trace_id.to_bytes(16), digest_size=8).digest()
        recorded = int.from_bytes(mixed) < self._bound
        decision = Decision.RECORD_AND_SAMPLE if recorded else Decision.DROP
        return SamplingResult(decision, attributes if recorded else None, trace_state)

    def get_description(self) -> str:
        """Return a description of the sampler."""
        return f"JobRatio{{{self._ratio}}}"


def ratio_of(environment: Mapping[str, str]) -> float | None:
    """Return the sampling ratio that OpenTelemetry's standard variables set.

    Returns:
        The ratio; None if they name no ratio sampler, so that the SDK's own can be used.

    Raises:
        InvalidValue: the ratio is not a number from 0 to 1.
    """
    named = environment.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if named not in {_RATIO, _PARENT_BASED}:
        return None
    text = environment.get("OTEL_TRACES_SAMPLER_ARG", "1").strip() or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        message = f"OTEL_TRACES_SAMPLER_ARG is {text!r:.40}"
        raise InvalidValue(message, hint="it must be a number from 0 to 1")
    return ratio


def otlp_provider(service: str) -> TracerProvider:
    """Return a tracer provider that exports spans by OTLP, in batches from a background thread.

    It is configured by OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS,
    OTEL_TRACES_SAMPLER, OTEL_BSP_* and the other standard variables. Its shutdown exports the rest.

    Args:
        service: default name of this program, overridden by OTEL_SERVICE_NAME or
            OTEL_RESOURCE_ATTRIBUTES.
    """
    ratio = ratio_of(os.environ)
    sampler: Sampler | None = None if ratio is None else ParentBased(JobRatio(ratio))
    named = OTELResourceDetector().detect()
    resource = Resource.create({SERVICE_NAME: service} | dict(named.attributes))
    provider = TracerProvider(sampler=sampler, resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
