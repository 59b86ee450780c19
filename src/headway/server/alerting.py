"""Starting the alerts of a server."""

from __future__ import annotations

from headway.core.errors import InvalidValue
from headway.server.alerts.alerts import check_names
from headway.server.alerts.catalogue import rules
from headway.server.alerts.facts import Facts
from headway.server.alerts.rule_book import Book, RuleBook
from headway.server.alerts.settings import AlertSettings, read_alert_settings
from headway.server.alerts.sink import LogSink, Sink
from headway.server.alerts.watch import Watch
from headway.server.service import Service


def start_alerts(service: Service) -> None:
    """Alerts for as long as the server runs, if it is the one of its store that leads.

    Args:
        service: whose store, whose systems' rules, and whose options say who is alerted.

    Raises:
        InvalidValue: the options are unusable, or an extra is missing.
    """
    settings = read_alert_settings(service.options.alerts)
    books = (engine_book(settings), *service.alerts.books)
    check_names(books, settings.off)
    service.alerts.off = settings.off
    watch = Watch(
        service.store,
        service.timing,
        books=books,
        alerts=service.alerts,
        sinks=_sinks(settings),
        each_ms=settings.each_ms,
    )
    service.spawn(watch.run(), "alerts")


def engine_book(settings: AlertSettings) -> Book:
    """The rules of the engine; they look at the facts as they are.

    Args:
        settings: with the values from which on they speak.
    """

    async def see(facts: Facts) -> Facts:
        return facts

    return RuleBook(rules=lambda: rules(settings), see=see, runbooks=settings.runbooks)


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
