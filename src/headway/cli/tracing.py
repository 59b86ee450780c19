"""Traces of a command that works: switched on by a setting."""

from __future__ import annotations

from headway.cli.extras import needs_extra
from headway.cli.settings import Settings
from headway.runtime.app import App


def trace_if_asked(app: App, settings: Settings) -> None:
    """Traces an App's jobs, if the settings ask for it.

    Spans that handlers make themselves go the same way.

    Args:
        app: not opened yet.
        settings: of the session.

    Raises:
        InvalidValue: the extra is not installed, or a variable is unusable.
    """
    if not settings.traces:
        return
    with needs_extra("otel"):
        from opentelemetry.trace import set_tracer_provider  # noqa: PLC0415  (an extra)

        from headway.runtime.tracing.exporting import otlp_provider  # noqa: PLC0415
        from headway.runtime.tracing.trace import trace  # noqa: PLC0415
    provider = otlp_provider("headway")
    set_tracer_provider(provider)
    trace(app, provider)
