"""Starting the alerts of a server."""

from __future__ import annotations

from headway.core.errors import InvalidValue
from headway.server.alerts.catalogue import rules
from headway.server.alerts.settings import AlertSettings, read_alert_settings
from headway.server.alerts.sink import LogSink, Sink
from headway.server.alerts.throttle import Throttle
from headway.server.alerts.watch import Watch
from headway.server.service import Service


def start_alerts(service: Service) -> None:
    """Alerts for as long as the server runs, if it is the one of its store that leads.

    Args:
        service: whose store, and whose options say who is alerted.

    Raises:
        InvalidValue: the options are unusable, or an extra is missing.
    """
    settings = read_alert_settings(service.options.alerts)
    watch = Watch(
        service.store,
        service.timing,
        rules=lambda: rules(settings),
        throttle=Throttle(settings.runbooks),
        sinks=_sinks(settings),
        each_ms=settings.each_ms,
    )
    service.spawn(watch.run(), "alerts")


def _sinks(settings: AlertSettings) -> list[Sink]:
    sinks: list[Sink] = [LogSink()]
    if not settings.urls:
        return sinks
    try:
        # Only those who are told by it need it.
        from headway.server.alerts.apprise_sink import AppriseSink  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = f"alerts.urls needs the package {error.name}, which is not installed"
        raise InvalidValue(message, hint="pip install 'headway[alerts]'") from None
    for number, url in enumerate(settings.urls, start=1):
        sinks.append(AppriseSink(url, f"alerts.urls: address {number}"))
    return sinks
