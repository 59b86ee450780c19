"""Tracing an app, switched on in one place."""

from __future__ import annotations

from importlib import metadata

from opentelemetry.trace import TracerProvider, get_tracer_provider

from headway.runtime.app import App
from headway.runtime.tracing.handlers import traced_handlers
from headway.runtime.tracing.recorder import Recorder
from headway.runtime.tracing.traced_store import traced_store

SCOPE = "headway"


def trace(app: App, tracer_provider: TracerProvider | None = None) -> None:
    """Trace an app's jobs: those it sends, those its workers run, and what it is signalled.

    Called once, before the app's store is used. An app that is not traced pays nothing.

    Args:
        tracer_provider: where spans go; OpenTelemetry's global one if not given.

    Raises:
        InvalidValue: the app's store is open already.
    """
    provider = tracer_provider or get_tracer_provider()
    recorder = Recorder(provider.get_tracer(SCOPE, metadata.version("headway")))
    app.observe(lambda store: traced_store(store, recorder), traced_handlers(recorder))
