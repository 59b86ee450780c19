"""Completion for a shell: the names that the store, the App and the package know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import redirect_stdout, suppress
from io import StringIO

import typer

from headway.cli.session import Session
from headway.contract.store import Store
from headway.contract.views import GatesQuery, JobsQuery, LanesQuery

_LOOKED_AT = 1_000
"""Jobs whose kinds are known: a store keeps no list of kinds."""
_CLOSABLE = ("all", "kind:", "lane:", "tenant:")


async def lane_names(store: Store) -> list[str]:
    """Return the lanes of a store."""
    return [one.name for one in await store.read(LanesQuery())]


async def kind_names(store: Store) -> list[str]:
    """Return the kinds of the newest jobs of a store."""
    page = await store.read(JobsQuery(limit=_LOOKED_AT, newest=True))
    return sorted({job.kind for job in page.rows})


async def _gate_names(store: Store) -> list[str]:
    page = await store.read(GatesQuery(limit=_LOOKED_AT))
    return [one.name for one in page.rows]


async def _closable_names(store: Store) -> list[str]:
    lanes = [f"lane:{name}" for name in await lane_names(store)]
    kinds = [f"kind:{name}" for name in await kind_names(store)]
    return list(dict.fromkeys([*_CLOSABLE, *kinds, *lanes, *await _gate_names(store)]))


def complete_lane(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a lane."""
    return _beginning(incomplete, _ask(context, lane_names))


def complete_gate(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a gate."""
    return _beginning(incomplete, _ask(context, _gate_names))


def complete_target(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of what can be paused."""
    return _beginning(incomplete, _ask(context, _closable_names) or _CLOSABLE)


def complete_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a kind, of the App if one is named or set, else of recent jobs."""
    session = _session(context)
    # What the user's program prints would be taken for completions, and an error for one too.
    with suppress(Exception), redirect_stdout(StringIO()):
        named = context.params.get("app_name") or session.settings.app
        if named is not None:
            from headway.cli.app_file import load_app  # noqa: PLC0415  (only if an App is named)

            return _beginning(incomplete, load_app(str(named)).kinds)
    return _beginning(incomplete, _ask(context, kind_names))


def _session(context: typer.Context) -> Session:
    above = context.parent.params if context.parent is not None else {}
    return Session(store=context.params.get("store") or above.get("store"), json=False)


def _ask(context: typer.Context, names: Callable[[Store], Awaitable[list[str]]]) -> list[str]:
    """Ask the store; a store that does not answer has nothing to complete."""
    with suppress(Exception):
        return _session(context).with_store(names)
    return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
