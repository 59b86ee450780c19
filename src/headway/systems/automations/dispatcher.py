"""The dispatcher: entries of the file become entries of the timetable, and their fires sessions.

A session is a job of the kind `automations.session`. It needs two gates: the repository's lock,
`repository:KEY`, and the limit of sessions, `automations.sessions`. It is handed over before
anything is started; from then on it holds both gates only as long as its lease is renewed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psutil

from headway.contract.definitions import (
    DeclareEntry,
    DeclareGate,
    DefineRequest,
    EnableEntry,
    EntrySpec,
    Item,
    RemoveEntry,
)
from headway.contract.store import Store
from headway.contract.views import EntryView, StatsQuery, TimetableQuery
from headway.core.duration import UNITS_MS
from headway.core.errors import HeadwayError, InvalidValue, RevisionConflict, StoreError
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateNeed, GateSpec
from headway.core.job import NewJob, derived_id, fire_id
from headway.core.naming import did_you_mean
from headway.core.retry import Backoff
from headway.core.state import State
from headway.core.timetable.schedule import Every, Schedule
from headway.runtime.app import App
from headway.runtime.chores import TimetableChore
from headway.runtime.handler_results import Dead, Snooze
from headway.runtime.inserting import batches
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.timing import REAL, Timing
from headway.systems.automations.config import HOUR_MS, Automation, Config, ConfigFault, read_config
from headway.systems.automations.folders import Folders, log, write_log
from headway.systems.automations.notices import Notices
from headway.systems.automations.runner import SessionRunner
from headway.systems.automations.session import End

NAME = "automations"
LANE = "automations"
KIND = "automations.session"
LIMIT = "automations.sessions"
LOCK = "repository:"
ENTRY = "automation:"
AUTHOR = "automations.toml"
LIVE = (State.RUNNING, State.AWAITING)
FILE_RETRY = "10s"
"""How long a session waits for a file that could not be read since the start."""


def read_load() -> dict[str, float]:
    """Return the load of this machine in %: `cpu` per core in the last minute, and `memory`."""
    cpu = 100 * psutil.getloadavg()[0] / (os.cpu_count() or 1)
    return {"cpu": cpu, "memory": psutil.virtual_memory().percent}


@dataclass(kw_only=True)
class Dispatcher:
    """Applies the file to the timetable, and runs sessions; for handler, routes and commands.

    Attributes:
        file: path of `automations.toml`.
        config: contents of the file when it was last readable.
        unreadable: why the file cannot be read; None if it can.
        revision: increases with each edit, and each time the load becomes high or normal.
        applied: revision that was last applied to the timetable.
        load: reads the load of the machine.
        lowered: load that currently lowers the limit; "" for none.
        started_at: start of the server, in seconds of `Timing.monotonic`.
    """

    file: Path
    folders: Folders
    lease_ms: int
    timing: Timing = REAL
    config: Config = field(default_factory=Config)
    unreadable: ConfigFault | None = None
    kind: Kind | None = None
    revision: int = 0
    applied: int = -1
    load: Callable[[], Mapping[str, float]] = read_load
    lowered: str = ""
    started_at: float = 0.0
    _seen: object = None

    def __post_init__(self) -> None:
        self.runner = SessionRunner(
            folders=self.folders, lease_ms=self.lease_ms, timing=self.timing
        )

    # -------------------------------------------------------------------------------- the file

    def read(self) -> None:
        """Read the file if it has changed, and the load; `sync` applies both."""
        self._read_file()
        governor, before = self.config.dispatcher.governor, self.lowered
        limits = {"cpu": governor.cpu, "memory": governor.memory}
        load: Mapping[str, float] = self.load() if any(limits.values()) else {}
        high = [what for what, limit in limits.items() if limit is not None and load[what] > limit]
        self.lowered = ", ".join(f"{what} {load[what]:.0f} % of {limits[what]} %" for what in high)
        if bool(before) is not bool(self.lowered):
            self.revision += 1
            log(logging.WARNING, "limit changed", {"max": self.max_sessions, "load": self.lowered})

    @property
    def max_sessions(self) -> int:
        """Maximum number of sessions at once, given the file and the load."""
        table = self.config.dispatcher
        least = table.governor.max_concurrent if self.lowered else table.max_concurrent
        return min(table.max_concurrent, least)

    def _read_file(self) -> None:
        path = self.file
        with suppress(OSError):
            facts = path.stat()
            seen = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            if seen == self._seen:
                return
            self._seen = seen
        try:
            self.config = read_config(path)
        except InvalidValue as error:
            self._seen = None
            fault = ConfigFault(automation_id=None, file=str(path), line=1, error=error.message)
            before, self.unreadable = self.unreadable, fault
            if before != self.unreadable:
                log(logging.ERROR, "file not read", {"error": str(error)})
            return
        self.unreadable = None
        self.revision += 1
        logging.getLogger("headway.automations").setLevel(self.config.dispatcher.log_level.upper())
        if self.runner.notices is not None:
            self.runner.notices.use(self.config.dispatcher.notifications)
        for fault in self.config.faults:
            log(logging.ERROR, "entry skipped", asdict(fault))

    @property
    def faults(self) -> tuple[ConfigFault, ...]:
        """Errors in the file."""
        return (*([self.unreadable] if self.unreadable else []), *self.config.faults)

    @property
    def was_never_read(self) -> bool:
        """Whether the file could not be read since the start, so that its contents are unknown."""
        return self.unreadable is not None and self.config == Config()

    def enabled(self) -> list[Automation]:
        """Return the enabled entries, in the order of the file."""
        if not self.config.dispatcher.enabled:
            return []
        return [one for one in self.config.automations.values() if one.table.enabled]

    # --------------------------------------------------------------------------- declarations

    def declare(self, app: App) -> None:
        """Declare the kind of sessions on an app."""

        @app.job(
            name=KIND,
            lane=LANE,
            gates=self.gates(),
            subject="{repository}",
            retry=Backoff(attempts=1),
            start_within="1m",
            on_deadline="retry",
            keep="30d",
        )
        async def session(job: Job, automation: str, repository: str) -> Snooze | None:
            return await self.work(app.store, job, automation, repository)

        self.kind = session

    def gates(self, one: Automation | None = None) -> list[GateSpec]:
        """Return the gates that all sessions need, and the window of one entry."""
        window = [] if one is None or one.window is None else [one.window]
        return [Slots(f"{LOCK}{{repository}}", 1), Slots(LIMIT, self.max_sessions), *window]

    def spec(self, one: Automation, known: EntryView | None, now: int) -> EntrySpec:
        """Return the timetable's entry for an entry of the file.

        A new interval is anchored at `now`, rounded down to a second: the plan's tick divides
        every offset, so milliseconds would make it tiny.
        """
        name = ENTRY + one.id
        anchor = now - now % UNITS_MS["s"]
        return EntrySpec(
            name=name,
            schedule=anchored(one, known) or replace(one.schedule, anchor_at=anchor),
            job=self._job(one, derived_id("entry", name)),
            overlap=one.table.overlap,
        )

    def _job(self, one: Automation, job_id: str | None = None) -> NewJob:
        assert self.kind is not None  # noqa: S101  (`declare` comes first)
        table = one.table
        job = self.kind.make(
            automation=one.id, repository=one.repository.key, priority=table.priority, job_id=job_id
        )
        needs: list[GateSpec | GateNeed] = list(self.gates(one))
        retry = Backoff(
            attempts=table.retries + 1,
            base=f"{table.retry_after}ms",
            cap=f"{max(table.retry_after, HOUR_MS)}ms",
        )
        return job.changed(
            gates=self.kind.uses(job.stage, job.lane, job.tenant, job.args, needs),
            policy=replace(job.policy, retry=retry),
        )

    async def sync(self, store: Store) -> None:
        """Apply the file to the timetable, and create its next fires.

        Disabled, invalid and permanently failed entries stay in the timetable, but do not fire.
        """
        known, revision = await self._define(store, self._items)
        # An interval that has never fired is due at once. Its first fire is a job like any
        # other: `Store.fire` would refuse it after a worker created the next one meanwhile.
        first = [
            first_fire(view)
            for name, view in (await entries_of(store)).items()
            if view.revision == 1 and (name not in known or view.last_fired is None)
            if view.spec.enabled and isinstance(view.spec.schedule, Every)
        ]
        for step in batches(first):
            await store.enqueue(step)
        await TimetableChore(store, self.timing).create_fires()
        # Not `self.revision`: a session may have read a newer file meanwhile.
        self.applied = revision

    async def _define(
        self,
        store: Store,
        items_for: Callable[[Mapping[str, EntryView], int], Sequence[Item]],
        one: str | None = None,
    ) -> tuple[Mapping[str, EntryView], int]:
        """Apply changes that depend on the timetable and the file, unless one has changed since.

        Processes that did this at once would undo each other's changes: a new interval would be
        anchored twice, or an entry declared as in an older file.

        Args:
            items_for: returns the changes, from the entries by id, and the store's time.
            one: id of the only entry that they depend on; None for all.

        Returns:
            The entries as they were at first, and the revision of the file.
        """
        before: Mapping[str, EntryView] | None = None
        while True:
            stats = await store.read(StatsQuery())
            known = await entries_of(store, one)
            before = known if before is None else before
            # Now, so that it is no older than the file that another process has applied.
            self.read()
            read, at = self.revision, stats.revision
            items = items_for(known, stats.now)
            try:
                for part in batches(items):
                    request = DefineRequest(
                        items=tuple(part), author=AUTHOR, reason=self.lowered, revision=at
                    )
                    at = await store.define(request)
            except RevisionConflict:
                continue
            return before, read

    def _items(self, known: Mapping[str, EntryView], now: int) -> list[Item]:
        """Return the changes of the timetable that apply the file."""
        if self.runner.notices is not None:
            self.runner.notices.add_faults(self.faults)
        if self.was_never_read:
            # An empty file would remove all entries, and with them the anchors of their intervals.
            return []
        failed = self.failed_permanently(known.values())
        enabled = {one.id: one for one in self.enabled() if one.id not in failed}
        items: list[Item] = [DeclareGate(spec=spec) for spec in self.gates()]
        for name, one in enabled.items():
            items += self._changes(one, known.get(name), now)
        kept = self.config.automations.keys() | {one.automation_id for one in self.config.faults}
        for name in known.keys() - enabled.keys():
            off = EnableEntry(name=ENTRY + name, enabled=False)
            items.append(off if name in kept else RemoveEntry(name=ENTRY + name))
        return items

    def _changes(self, one: Automation, known: EntryView | None, now: int) -> Iterable[Item]:
        spec = self.spec(one, known, now)
        on = EnableEntry(name=spec.name, enabled=True)
        if one.window is not None:
            yield DeclareGate(spec=one.window)
        if known is not None and replace(known.spec, enabled=True) == spec:
            if not known.spec.enabled:
                yield on
            return
        yield DeclareEntry(spec=spec)
        if known is not None and not known.spec.enabled:
            yield on

    def failed_permanently(self, entries: Iterable[EntryView]) -> dict[str, str]:
        """Return the ids of entries that are skipped until they are edited, with the reasons."""
        found: dict[str, str] = {}
        for view in entries:
            one = self.config.automations.get(view.spec.name.removeprefix(ENTRY))
            args = json.loads(view.spec.job.args)
            if one is not None and args.get("failed") == one.digest:
                found[one.id] = args["why"]
        return found

    async def _apply_end(self, store: Store, one: Automation, end: End) -> None:
        """Disable an entry that failed permanently; enable it again if it succeeded after all.

        Raises:
            StoreError: the store failed; the entry fires as before.
        """

        def items_for(entries: Mapping[str, EntryView], now: int) -> Sequence[Item]:
            known, current = entries.get(one.id), self.config.automations.get(one.id)
            if known is None or current is None or current.digest != one.digest:
                # It was edited during the session, so this says nothing about it.
                return ()
            if end.permanent is bool(self.failed_permanently([known])):
                return ()
            spec = self.spec(one, known, now)
            if end.permanent:
                marked = {**json.loads(spec.job.args), "failed": one.digest, "why": str(end)}
                spec = replace(spec, job=spec.job.changed(args=json.dumps(marked).encode()))
            on = EnableEntry(name=spec.name, enabled=True)
            off = replace(on, enabled=False)
            return (DeclareEntry(spec=spec), off, *([] if end.permanent else [on]))

        if end.permanent or end.succeeded:
            _, revision = await self._define(store, items_for, one.id)
            self.read()
            if self.revision != revision:
                # A server that applied the edit before this may have found nothing to change.
                await self.sync(store)

    async def watch(self, store: Store, each_s: float) -> None:
        """Apply edits of the file until cancelled."""
        while True:
            self.read()
            if self.unreadable and self.runner.notices is not None:
                self.runner.notices.add_faults(self.faults)
            if self.applied != self.revision:
                try:
                    await self.sync(store)
                except HeadwayError as error:
                    log(logging.WARNING, "edits not applied", {"error": str(error)})
                else:
                    log(logging.INFO, "file applied", {"automations": len(self.config.automations)})
            await self.timing.pause(each_s)

    def open(self) -> None:
        """Create the folders, open the log, and read the file.

        Raises:
            InvalidValue: a folder cannot be created.
        """
        self.folders.make()
        write_log(self.folders)
        if self.runner.notices is None:
            memory = self.folders.root / "faults.json"
            self.runner.notices = Notices(timing=self.timing, memory=memory)
            self.runner.notices.use(self.config.dispatcher.notifications)
        self.read()

    # -------------------------------------------------------------------------------- sessions

    async def work(self, store: Store, job: Job, automation: str, repository: str) -> Snooze | None:
        """Run one session; the handler of the kind.

        Returns:
            A Snooze if the file could not be read yet.

        Raises:
            Dead: the entry no longer exists, or has another repository now.
            CancelledError: the worker stopped without waiting for the session.
        """
        self.read()
        if self.was_never_read:
            return Snooze(after=FILE_RETRY, reason="automations.toml cannot be read")
        one = self.config.automations.get(automation)
        if one is None or one.repository.key != repository:
            message = "the entry no longer exists" if one is None else "its repository has changed"
            raise Dead(message)
        self.open()
        lock_timeout_ms = int(self.config.dispatcher.lock_timeout_hours * HOUR_MS)
        session, end = await self.runner.run(store, job, one, lock_timeout_ms)
        # First: the job has ended, so the worker may stop this handler at its next heartbeat.
        self.runner.ended(session, end)
        with suppress(StoreError):
            await self._apply_end(store, one, end)
        await session.prune(self.runner.folders)
        return None

    async def run_now(self, store: Store, automation: str, id: str | None = None) -> str:
        """Make one session due now, regardless of the schedule; its gates still apply.

        Args:
            id: id of its job, for which repeats create no second one; None for a new id.

        Returns:
            The id of its job.

        Raises:
            InvalidValue: there is no such entry, or it is not valid.
        """
        one = self.find(automation)
        declared = tuple(DeclareGate(spec=spec) for spec in self.gates(one))
        await store.define(DefineRequest(items=declared, author=AUTHOR))
        (done,) = await store.enqueue([self._job(one, id)])
        return done.id

    def find(self, automation: str) -> Automation:
        """Return an entry of the file.

        Raises:
            InvalidValue: there is no such entry, or it is not valid.
        """
        one = self.config.automations.get(automation)
        if one is not None:
            return one
        fault = next((each for each in self.faults if each.automation_id == automation), None)
        if fault is not None:
            raise InvalidValue(str(fault))
        message = f"there is no automation {automation!r} in {self.file}"
        hint = did_you_mean(automation, self.config.automations, "headway automations list")
        raise InvalidValue(message, hint=hint)


def anchored(one: Automation, known: EntryView | None) -> Schedule | None:
    """Return the schedule of an entry; an interval has the anchor that the timetable has.

    Returns:
        None for an interval that is not in the timetable yet: it is anchored when the entry is
        first applied, so its fires are not known.
    """
    if not isinstance(one.schedule, Every):
        return one.schedule
    if known is None or not isinstance(known.spec.schedule, Every):
        return None
    return replace(one.schedule, anchor_at=known.spec.schedule.anchor_at)


def first_fire(view: EntryView) -> NewJob:
    """Return the first session of an interval, due when its entry was declared."""
    at, name = view.first_seen_at, view.spec.name
    id_ = fire_id(name, at, view.revision, at)
    return view.spec.job.changed(id=id_, due_at=at, entry=name, fired_at=at)


async def entries_of(store: Store, one: str | None = None) -> dict[str, EntryView]:
    """Return the timetable's entries that come from a file, or `one`, by their ids in the file."""
    names = None if one is None else (ENTRY + one,)
    found = await store.read(TimetableQuery(names=names))
    return {
        entry.spec.name.removeprefix(ENTRY): entry
        for entry in found
        if entry.spec.name.startswith(ENTRY)
    }
