"""Options shared by several commands, and their shell completion."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from io import StringIO
from typing import Annotated

import typer

from headway.cli.session import CommandSession
from headway.contract.store import Store, read_pages
from headway.contract.views import GatesQuery, JobsQuery, JobView, LanesQuery, Page, StatsQuery
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import optional_moment
from headway.core.naming import did_you_mean, whole_number
from headway.core.state import State
from headway.server.finding import ended_since

HostOption = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Host name or address to listen on.")
]
PortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
]

_NEWEST = 1_000
"""Number of newest jobs that are searched for kinds: a store keeps no list of kinds."""
_CLOSABLE = ("all", "kind:", "lane:", "tenant:")


async def lane_names(store: Store) -> list[str]:
    """Return the lanes of a store."""
    return [one.name for one in await store.read(LanesQuery())]


async def kind_names(store: Store) -> list[str]:
    """Return the kinds of the newest jobs of a store."""
    page = await store.read(JobsQuery(limit=_NEWEST, newest=True))
    return sorted({job.kind for job in page.rows})


async def _gate_names(store: Store) -> list[str]:
    page = await store.read(GatesQuery(limit=_NEWEST))
    return [one.name for one in page.rows]


async def _closable_names(store: Store) -> list[str]:
    lanes = [f"lane:{name}" for name in await lane_names(store)]
    kinds = [f"kind:{name}" for name in await kind_names(store)]
    return list(dict.fromkeys([*_CLOSABLE, *kinds, *lanes, *await _gate_names(store)]))


_Names = Callable[[Store], Awaitable[list[str]]]


def _completing(
    names: _Names, otherwise: Sequence[str] = ()
) -> Callable[[typer.Context, str], list[str]]:
    """Return a completion function for names; it offers `otherwise` if the store has none."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return _starting_with(incomplete, _ask(context, names) or otherwise)

    return complete


complete_lane = _completing(lane_names)
complete_gate = _completing(_gate_names)
complete_target = _completing(_closable_names, _CLOSABLE)


def complete_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a kind: of the App if one is configured, otherwise of recent jobs."""
    session = _session(context)
    # Output and errors of the user's program would be taken for completions.
    with suppress(Exception), redirect_stdout(StringIO()):
        named = context.params.get("app_name") or session.settings.app
        if named is not None:
            from headway.cli.app_file import load_app  # noqa: PLC0415  (only if an App is named)

            return _starting_with(incomplete, load_app(str(named)).kinds)
    return _starting_with(incomplete, _ask(context, kind_names))


def _session(context: typer.Context) -> CommandSession:
    above = context.parent.params if context.parent is not None else {}
    return CommandSession(store=context.params.get("store") or above.get("store"), json=False)


def _ask(context: typer.Context, names: _Names) -> list[str]:
    """Return names from the store; none if it does not answer."""
    with suppress(Exception):
        return _session(context).with_store(names)
    return []


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


PAGE = 1_000
"""Jobs per request: the contract's maximum."""


def check_duration(option: typer.CallbackParam, text: str | None) -> str | None:
    """Validate an option's duration; the error names the option.

    Raises:
        InvalidValue: it is not a valid duration.
    """
    if text is not None:
        try:
            parse_duration(text)
        except InvalidValue as error:
            message = f"{option.opts[0]}: {error.message}"
            raise InvalidValue(message, hint=error.hint) from None
    return text


def duration_option(text: str) -> object:
    """Return an option for a duration, with this help."""
    return typer.Option(metavar="DURATION", callback=check_duration, help=text)


def read_number(option: str, what: str, text: str) -> tuple[str, int]:
    """Parse an option's value of the form NAME=N.

    Raises:
        InvalidValue: it does not have that form.
    """
    name, equals, written = text.rpartition("=")
    number = whole_number(written, digits=10)
    if not equals or number is None or (not name and what == "NAME"):
        message = f"the {option} {text[:80]!r} is not {what}=N"
        raise InvalidValue(message, hint=f"for example --{option} acme=2")
    return name, number


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
AppName = Annotated[
    str | None,
    typer.Option("--app", metavar="APP", help="Your App: a file, or module[:name]."),
]
KindsApp = Annotated[
    str | None,
    typer.Option("--app", metavar="APP", help="Create jobs of the kinds this App defines."),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help='When it reopens: after a duration ("20m"), or at an instant with an offset.',
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed:
    """The author and reason to record in the trail."""

    author: Annotated[
        str | None,
        typer.Option(help="Recorded as the author. Defaults to HEADWAY_AUTHOR or your login name."),
    ] = None
    reason: Annotated[
        str, typer.Option(help="Reason to record in the trail.", show_default=False)
    ] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """Selects jobs; None matches any."""

    lane: Annotated[
        str | None, typer.Option(help="Only jobs in this lane.", autocompletion=complete_lane)
    ] = None
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None
    kind: Annotated[
        str | None, typer.Option(help="Only jobs of this kind.", autocompletion=complete_kind)
    ] = None
    state: Annotated[
        list[State] | None, typer.Option(help="Only jobs in this state; repeatable.")
    ] = None
    subject: Annotated[str | None, typer.Option(help="Only jobs with this subject.")] = None
    key: Annotated[str | None, typer.Option(help="Only the job with this key.")] = None
    finished_since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help='Only jobs that ended since: a duration ago ("1h"), or an instant with an offset.',
        ),
    ] = None

    @property
    def has_criteria(self) -> bool:
        """Whether it filters by anything except the state."""
        return replace(self, state=None) != JobFilter()

    @property
    def query(self) -> JobsQuery:
        """The query for the first page of these jobs, of the maximum size."""
        return JobsQuery(
            lane=self.lane,
            tenant=self.tenant,
            kind=self.kind,
            states=tuple(self.state or ()),
            subject=self.subject,
            key=self.key,
            limit=PAGE,
        )

    async def unknown_names(self, store: Store) -> list[str]:
        """Return a note for each unknown lane or kind in the filter: it may be misspelled."""
        notes: list[str] = []
        for what, name, known in (
            ("lane", self.lane, lane_names),
            ("kind", self.kind, kind_names),
        ):
            names = [] if name is None else await known(store)
            if name is not None and name not in names:
                meant = did_you_mean(name, names)
                note = f"note: no job of the {what} {name!r} is known"
                notes.append(note + (meant and f" ({meant})"))
        return notes

    async def since(self, store: Store) -> int | None:
        """Return the time, in ms, at which the jobs ended at the earliest; None for any jobs.

        Raises:
            InvalidValue: the option is not a time.
        """
        moment = optional_moment("--finished-since", self.finished_since)
        return None if moment is None else moment.ago((await store.read(StatsQuery())).now)

    async def pages(
        self, store: Store, *, runs: bool = False, trail: bool = False
    ) -> AsyncGenerator[Page[JobView]]:
        """Yield all of these jobs in pages, oldest arrival first; each page is a snapshot."""
        since = await self.since(store)
        async for page in read_pages(store, replace(self.query, runs=runs, trail=trail)):
            yield replace(page, rows=tuple(one for one in page.rows if ended_since(one, since)))
