"""Options that several commands share, in groups that a command takes whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

import typer

from headway.cli.completing import complete_kind, complete_lane, kind_names, lane_names
from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView, Page
from headway.core.naming import did_you_mean
from headway.core.state import State

PAGE = 1_000
"""Jobs of one request: the most that the contract allows."""

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before acting on many.")]
AppName = Annotated[
    str | None,
    typer.Option("--app", metavar="APP", help="The file or module[:name] of your App."),
]
Until = Annotated[
    str | None,
    typer.Option(help='Open again by itself: "20m" from now, or an instant with its offset.'),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed:
    """The author and the reason, for the trail."""

    author: Annotated[
        str | None, typer.Option(help="Who does it; else HEADWAY_AUTHOR or your login name.")
    ] = None
    reason: Annotated[str, typer.Option(help="Why, for the trail.", show_default=False)] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """Which jobs; what is None stands for any."""

    lane: Annotated[
        str | None, typer.Option(help="Only of this lane.", autocompletion=complete_lane)
    ] = None
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None
    kind: Annotated[
        str | None, typer.Option(help="Only of this kind.", autocompletion=complete_kind)
    ] = None
    state: Annotated[
        list[State] | None, typer.Option(help="Only in this state; may be repeated.")
    ] = None
    subject: Annotated[str | None, typer.Option(help="Only about this.")] = None
    key: Annotated[str | None, typer.Option(help="Only the job that has this key.")] = None

    @property
    def names_something(self) -> bool:
        """Whether anything but a state is asked for."""
        return any(
            one is not None for one in (self.lane, self.tenant, self.kind, self.subject, self.key)
        )

    def query(
        self,
        *,
        limit: int = PAGE,
        cursor: str | None = None,
        runs: bool = False,
        trail: bool = False,
        newest: bool = False,
    ) -> JobsQuery:
        """The question for one page of these jobs."""
        return JobsQuery(
            lane=self.lane,
            tenant=self.tenant,
            kind=self.kind,
            states=tuple(self.state or ()),
            subject=self.subject,
            key=self.key,
            limit=limit,
            cursor=cursor,
            runs=runs,
            trail=trail,
            newest=newest,
        )

    async def doubts(self, store: Store) -> list[str]:
        """Return a note for each lane or kind that is named and not known: it may be a slip."""
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

    async def pages(
        self, store: Store, *, runs: bool = False, trail: bool = False
    ) -> AsyncIterator[Page[JobView]]:
        """All of these jobs, page after page, oldest arrival first; each page is a snapshot."""
        cursor: str | None = None
        while True:
            page = await store.read(self.query(cursor=cursor, runs=runs, trail=trail))
            yield page
            cursor = page.cursor
            if cursor is None:
                return
