"""Changing definitions from the command line: one step, recorded in the trail."""

from __future__ import annotations

from dataclasses import replace

from headway.cli.options import JobFilter, Signed
from headway.cli.session import CommandSession
from headway.contract.definitions import CloseGate, DefineRequest, Item
from headway.contract.store import Store
from headway.contract.views import GatesQuery, LanesQuery, StatsQuery, TimetableQuery
from headway.core.errors import UnknownEntry, UnknownGate
from headway.core.instant import optional_moment
from headway.core.naming import did_you_mean

LANE = "lane:"


def define(
    session: CommandSession,
    name: str,
    item: Item,
    signed: Signed,
    *,
    done: str,
    revision: int | None = None,
) -> None:
    """Apply one change and print `done`.

    Args:
        name: Name of the changed gate or entry; of a lane, its gate. A note is printed if no job
            of this lane or kind is known.
        revision: Revision of the definitions from which the change was made; None for any.

    Raises:
        RevisionConflict: the definitions have another revision; nothing was written.
    """
    request = replace(definition_request(session, item, signed), revision=revision)

    async def work(store: Store) -> tuple[int, list[str]]:
        notes = await _unknown_notes(store, name)
        return await _defined(store, name, request), notes

    now, notes = session.with_store(work)
    session.terminal.reply({"revision": now}, done)
    session.notes(notes)


def close(session: CommandSession, gate: str, *, until: str | None, signed: Signed) -> None:
    """Close any gate, indefinitely or until a given time, and print until when.

    Args:
        until: When it reopens by itself, as given on the command line; None for never.

    Raises:
        InvalidValue: the time is not valid or in the past; nothing was written.
    """
    moment = optional_moment("--until", until)

    async def work(store: Store) -> tuple[int, int | None, list[str]]:
        until_at = None
        if moment is not None:
            now = (await store.read(StatsQuery())).now
            until_at = moment.ahead("--until", now)
        item = CloseGate(name=gate, until_at=until_at, reason=signed.reason)
        done = await _defined(store, gate, definition_request(session, item, signed))
        return done, until_at, await _unknown_notes(store, gate)

    revision, until_at, notes = session.with_store(work)
    when = f"until {session.clock.at(until_at)}" if until_at is not None else "until it is opened"
    session.terminal.reply(
        {"revision": revision, "closed_until": until_at}, f"{gate} is closed {when}"
    )
    session.notes(notes)


async def _defined(store: Store, name: str, request: DefineRequest) -> int:
    """Apply one change and return the new revision.

    Raises:
        UnknownGate: there is no such gate; the hint has similar names. Nothing was written.
        UnknownEntry: there is no such entry; likewise.
    """
    try:
        return await store.define(request)
    except UnknownGate as error:
        hint = await similar_gates(store, name, error.hint)
        raise UnknownGate(error.message, hint=hint) from None
    except UnknownEntry as error:
        known = [one.spec.name for one in await store.read(TimetableQuery())]
        raise UnknownEntry(error.message, hint=did_you_mean(name, known, error.hint)) from None


async def similar_gates(store: Store, gate: str, otherwise: str) -> str:
    """Return a hint for an unknown gate, with the lane of this name or with a similar gate."""
    known = [one.name for one in (await store.read(GatesQuery(limit=1000))).rows]
    lanes = [LANE + one.name for one in await store.read(LanesQuery())]
    if LANE + gate in lanes:
        return f"did you mean {LANE}{gate}?"
    return did_you_mean(gate, known + lanes, otherwise)


async def _unknown_notes(store: Store, gate: str) -> list[str]:
    """Return a note about an unknown lane or kind: it may be closed in advance, or misspelled."""
    what, _, name = gate.partition(":")
    if what == "lane":
        return await JobFilter(lane=name).unknown_names(store)
    return await JobFilter(kind=name).unknown_names(store) if what == "kind" else []


def definition_request(session: CommandSession, item: Item, signed: Signed) -> DefineRequest:
    """Return the request for one change, with its author and reason."""
    return DefineRequest(items=(item,), author=session.author(signed.author), reason=signed.reason)
