"""The reference tables that are generated from the code, so that they cannot be wrong.

    python -m tests.docs.tables

rewrites them in the pages, each between `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import FunctionType

import headway as hw
from headway.bridges.cassandra.link import CassandraSettings
from headway.bridges.cassandra.monitoring import FAMILIES as OF_CALENDAR
from headway.bridges.kafka.metrics import FAMILIES as BRIDGE_FAMILIES
from headway.bridges.kafka.monitoring import FAMILIES as WATCH_FAMILIES
from headway.bridges.kafka.settings import InSettings, KafkaSettings, OutSettings
from headway.cli.failures import exit_code
from headway.cli.settings import PREFIX, Settings
from headway.client.work_requests import ClaimOptions
from headway.contract.definitions import Role
from headway.contract.operate import Acted, Verb
from headway.core.duration import format_duration
from headway.core.errors import HeadwayError
from headway.core.gates.spec import GateSpec
from headway.core.retry import RetryPolicy
from headway.core.state import FINAL, HELD, MOVES, State
from headway.runtime.declaration import EntryOptions, LaneOptions, read_entry
from headway.runtime.job import SyncJob
from headway.runtime.job_filters import JobFilters
from headway.runtime.kind import NOOP
from headway.runtime.kind_options import JobOptions, read_options
from headway.runtime.signals import SignalOptions
from headway.runtime.sources import SourceOptions
from headway.runtime.worker.worker_options import WorkerOptions, read_worker_options
from headway.server.bodies.work import ClaimBody, LeaseBody
from headway.server.metrics import FAMILIES, Family
from headway.systems.automations import FAMILIES as OF_AUTOMATIONS
from headway.systems.automations.routes import ROUTES as AUTOMATION_ROUTES
from headway.systems.calls.intake import LeadBody, NumberBody
from headway.systems.calls.lead import Attempt, Lead, LeadStatus, Outcome
from headway.systems.calls.metrics import FAMILIES as OF_CALLS
from headway.systems.field_service.metrics import FAMILIES as OF_FIELD_SERVICE
from headway.systems.notifications import OWN as NOTIFICATION_ROUTES
from headway.systems.notifications.intake import NotificationBody
from headway.systems.notifications.metrics import FAMILIES as OF_NOTIFICATIONS
from headway.systems.notifications.notification import Notification
from headway.systems.notifications.recipients import RecipientBody
from headway.systems.notifications.settings import ChannelSettings, NotificationSettings
from tests.docs import calls_tables, http_tables
from tests.docs.docstrings import items, summary
from tests.docs.pages import ROOT

_MARK = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- end -->", re.DOTALL)
FOLDER = ROOT / "docs" / "reference"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def errors() -> str:
    """Return the tree of errors, each with its code, exit code and meaning."""

    def walk(kind: type[HeadwayError], depth: int) -> Iterable[tuple[str, ...]]:
        code = exit_code(kind("")) if kind is not HeadwayError else ""
        yield ("&emsp;" * depth + f"`{kind.__name__}`", f"`{kind.code}`", str(code), summary(kind))
        for child in kind.__subclasses__():
            if child.__module__ == HeadwayError.__module__:
                yield from walk(child, depth + 1)

    return table(("error", "code", "exit", "meaning"), walk(HeadwayError, 0))


def moves() -> str:
    """Return, for each state, the states that a job can change to."""

    def sort(state: State) -> str:
        return "final" if state in FINAL else "held" if state in HELD else "queued"

    def rows() -> Iterable[tuple[str, ...]]:
        for state in State:
            ahead = [f"`{one}`" for one in State if one in MOVES[state]]
            yield f"`{state}`", sort(state), ", ".join(ahead) or "none"

    return table(("state", "group", "may go to"), rows())


def settings() -> str:
    """Return the settings of the command."""

    def rows() -> Iterable[tuple[str, ...]]:
        for name, field in Settings.model_fields.items():
            known = field.default is not None and field.default_factory is None
            default = f"`{field.default}`" if known else ""
            yield f"`{name}`", f"`{PREFIX}{name.upper()}`", default, field.description or ""

    return table(("key in headway.toml", "variable", "default", "meaning"), rows())


def metrics(families: Iterable[Family] = FAMILIES) -> str:
    """Return the metrics for Prometheus."""
    rows = (
        (f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.help)
        for one in families
    )
    return table(("metric", "kind", "labels", "meaning"), rows)


def options(of: object, *, section: str = "Attributes", skip: tuple[str, ...] = ()) -> str:
    """Return the items of a docstring's section."""
    found = {name: text for name, text in items(of, section).items() if name not in skip}
    given = defaults(of) if section == "Args" else {}
    if not any(given.get(name) for name in found):
        return table(("option", "meaning"), ((f"`{name}`", text) for name, text in found.items()))
    rows = ((f"`{name}`", text, given.get(name, "")) for name, text in found.items())
    return table(("option", "meaning", "default"), rows)


def defaults(of: object) -> dict[str, str]:
    """Return the defaults of a function's parameters, except for None."""
    found = inspect.signature(of).parameters if callable(of) else {}
    return {
        name: f"`{one.default!r}`".replace("'", '"')
        for name, one in found.items()
        if one.default is not None and one.default is not inspect.Parameter.empty
    }


def options_of(of: object, record: object, *, skip: tuple[str, ...] = ()) -> str:
    """Return the options of a TypedDict, with their defaults from a record read without options."""

    def rows() -> Iterable[tuple[str, ...]]:
        for name, text in items(of, "Attributes").items():
            if name not in skip:
                yield f"`{name}`", text, "" if name == "name" else default(record, name)

    return table(("option", "meaning", "default"), rows())


def default(record: object, name: str) -> str:
    """Return the default of an option, as the tables show it."""
    if hasattr(record, f"{name}_ms"):
        span = getattr(record, f"{name}_ms")
        return "" if span is None else f'`"{format_duration(span)}"`'
    value = getattr(record, name, None)
    if isinstance(value, float):
        return f'`"{format_duration(int(value * 1000))}"`'
    if isinstance(value, RetryPolicy):
        return "`Backoff()`"
    if isinstance(value, str):
        return f'`"{value}"`' if value else ""
    return f"`{value}`" if isinstance(value, bool | int) else ""


def words(of: type[StrEnum]) -> str:
    """Return the members of an enumeration, each with its docstring in the code."""
    said = re.findall(
        r'^    \w+ = "(\w+)"\n(?:    """(.*?)""")?', inspect.getsource(of), re.MULTILINE | re.DOTALL
    )
    return table(
        ("word", "meaning"), ((f"`{word}`", " ".join(text.split())) for word, text in said)
    )


def members(of: type, *, skip: tuple[str, ...] = ()) -> str:
    """Return the public members of a class: attributes, then methods."""
    attributes = dict(items(of, "Attributes"))
    if is_dataclass(of):
        attributes = {field.name: attributes.get(field.name, "") for field in fields(of)}
    methods: dict[str, str] = {}
    inherited = {
        name: one for each in reversed(of.__mro__[:-1]) for name, one in vars(each).items()
    }
    for name, one in inherited.items():
        if name.startswith("_") or name in skip:
            continue
        if isinstance(one, property):
            attributes[name] = summary(one.fget)
        elif isinstance(one, FunctionType):
            # A method of Job is async under its wrapper; a plain method of Client wraps an async
            # one.
            fn = inspect.unwrap(one) if of is hw.Job else one
            is_awaited = (
                inspect.iscoroutinefunction(fn) or fn.__annotations__["return"] == "Written"
            )
            call = f"{'await ' * is_awaited}{name}{signature(one)}"
            methods[call] = summary(one)
    named = {name: text for name, text in attributes.items() if name not in skip}
    rows = [(f"`{name}`", text) for name, text in (*named.items(), *methods.items())]
    return table(("member", "meaning"), rows)


def calls(*things: Callable[..., object]) -> str:
    """Return the functions and classes that are called, each with its summary."""
    rows = ((f"`hw.{one.__name__}{signature(one)}`", summary(one)) for one in things)
    return table(("call", "meaning"), rows)


def signature(one: Callable[..., object]) -> str:
    """Return a signature without annotations."""
    found = inspect.signature(one)
    bare = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in found.parameters.values()
        if each.name not in {"self", "timing"}
    ]
    return str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))


TABLES: dict[str, Callable[[], str]] = {
    "errors": errors,
    "moves": moves,
    "settings": settings,
    "metrics": metrics,
    "calls_metrics": lambda: metrics(OF_CALLS),
    "field_service_metrics": lambda: metrics(OF_FIELD_SERVICE),
    "automations_metrics": lambda: metrics(OF_AUTOMATIONS),
    "automations_routes": lambda: table(
        ("method", "path", "permission", "does"), http_tables.routes([AUTOMATION_ROUTES])
    ),
    "calls_routes": lambda: table(
        ("method", "path", "permission", "does"), http_tables.routes(calls_tables.routers())
    ),
    "calls_settings": lambda: table(calls_tables.HEAD, calls_tables.settings()),
    "calls_lead": lambda: table(calls_tables.HEAD, calls_tables.of_body(LeadBody)),
    "calls_number": lambda: table(calls_tables.HEAD, calls_tables.of_body(NumberBody)),
    "calls_template": lambda: table(calls_tables.HEAD, calls_tables.template()),
    "calls_statuses": lambda: words(LeadStatus),
    "calls_outcomes": lambda: words(Outcome),
    "calls_lead_told": lambda: options(Lead),
    "calls_attempt_told": lambda: options(Attempt),
    "notifications_metrics": lambda: metrics(OF_NOTIFICATIONS),
    "cassandra_metrics": lambda: metrics(OF_CALENDAR),
    "cassandra_settings": lambda: table(
        calls_tables.HEAD, calls_tables.of_settings(CassandraSettings)
    ),
    "notifications_routes": lambda: table(
        ("method", "path", "permission", "does"), http_tables.routes(NOTIFICATION_ROUTES)
    ),
    "notifications_settings": lambda: table(
        calls_tables.HEAD, calls_tables.of_settings(NotificationSettings)
    ),
    "notifications_channels": lambda: table(
        calls_tables.HEAD, calls_tables.of_settings(ChannelSettings)
    ),
    "kafka_settings": lambda: table(
        calls_tables.HEAD, list(calls_tables.of_body(KafkaSettings))[:3]
    ),
    "kafka_in_settings": lambda: table(calls_tables.HEAD, calls_tables.of_body(InSettings)),
    "kafka_out_settings": lambda: table(calls_tables.HEAD, calls_tables.of_body(OutSettings)),
    "kafka_metrics": lambda: metrics(BRIDGE_FAMILIES),
    "kafka_watch": lambda: metrics(WATCH_FAMILIES),
    "notifications_body": lambda: table(calls_tables.HEAD, calls_tables.of_body(NotificationBody)),
    "notifications_recipient": lambda: table(
        calls_tables.HEAD, calls_tables.of_body(RecipientBody)
    ),
    "notifications_told": lambda: options(Notification),
    "JobOptions": lambda: options_of(JobOptions, read_options("", {"name": "name"}), skip=()),
    "LaneOptions": lambda: options(LaneOptions),
    "EntryOptions": lambda: options_of(
        EntryOptions, read_entry("name", hw.App("memory://").kinds[NOOP], {"schedule": "every 1m"})
    ),
    "SourceOptions": lambda: options(SourceOptions),
    "SignalOptions": lambda: options(SignalOptions),
    "WorkerOptions": lambda: options_of(
        WorkerOptions,
        read_worker_options({"name": "host:pid"}),
        skip=("timing", "heartbeat", "before"),
    ),
    "make": lambda: options(hw.Kind.make, section="Args", skip=("arguments",)),
    "App": lambda: members(hw.App, skip=("importers", "kinds", "move_to", "observe")),
    "Client": lambda: members(hw.Client, skip=("remote", "patience_s", "post", "wait_for")),
    "claim_body": lambda: table(calls_tables.HEAD, calls_tables.of_body(ClaimBody)),
    "lease_body": lambda: table(calls_tables.HEAD, calls_tables.of_body(LeaseBody)),
    "outcomes": lambda: table(("outcome", "fields", "meaning"), http_tables.outcomes()),
    "JobFilters": lambda: options(JobFilters),
    "ClaimOptions": lambda: options(ClaimOptions),
    "Kind": lambda: members(
        hw.Kind,
        skip=(
            "handlers",
            "asks",
            "check_arguments",
            "options",
            "check_stages",
            "takes",
            "uses",
            "policy",
            "reconciled_by",
        ),
    ),
    "Worker": lambda: members(hw.Worker),
    "Failure": lambda: members(hw.Failure),
    "Job": lambda: members(
        hw.Job,
        skip=(
            "signal_base",
            "stop",
            "handed",
            "called",
            "handing",
            "forgotten",
            "touched",
            "claimed",
            "take_follow",
            "handing_over",
            "settled_by",
            "follow",
            "request_stop",
        ),
    ),
    "SyncJob": lambda: members(SyncJob),
    "Awaited": lambda: members(hw.Awaited),
    "answers": lambda: calls(hw.Retry, hw.Dead, hw.Snooze, hw.Next, hw.Unfit),
    "reconcile": lambda: calls(hw.Running, hw.Ended, hw.Unknown),
    "gates": lambda: calls(hw.Slots, hw.Rate, hw.Hours, hw.Pool),
    "take": lambda: options(GateSpec.take, section="Args"),
    "Slots": lambda: options(hw.Slots, section="Args"),
    "Rate": lambda: options(hw.Rate, section="Args"),
    "Hours": lambda: options(hw.Hours, section="Args"),
    "Pool": lambda: options(hw.Pool, section="Args"),
    "Backoff": lambda: options(hw.Backoff, section="Args"),
    "schedules": lambda: calls(hw.Cron, hw.Every, hw.At),
    "signal_results": lambda: words(hw.SignalResult),
    "verbs": lambda: words(Verb),
    "acted": lambda: words(Acted),
    "routes": lambda: table(("method", "path", "permission", "does"), http_tables.routes()),
    "problems": lambda: table(("code", "status", "meaning"), http_tables.problems()),
    "permissions": lambda: table(("permission", *Role), http_tables.permissions()),
}
"""Each table, by name."""


def renewed(text: str) -> str:
    """Return a page's text with its tables regenerated."""
    return _MARK.sub(
        lambda one: f"<!-- table: {one[1]} -->\n{TABLES[one[1]]()}\n<!-- end -->", text
    )


def main() -> None:
    """Write the tables into the pages."""
    for page in FOLDER.glob("*.md"):
        old = page.read_text(encoding="utf-8")
        new = renewed(old)
        if new != old:
            page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
