"""The texts of `headway top`: the header, what is stuck, the rows of a view, one job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, assert_never

import msgspec
from rich.text import Text

from headway.cli.facts import RUN_COLUMNS, capacity_text, gate_state, job_facts, run_row
from headway.cli.terminal import STYLES, LocalClock, rounded_duration, shown
from headway.cli.text import to_json
from headway.cli.top.snapshot import Snapshot, View
from headway.contract.views import GateState, JobView, LaneView, RunView
from headway.core.hidden import hidden_text, hidden_value
from headway.core.naming import counted
from headway.core.state import State
from headway.server.finding import run_times

WIDE = 110
"""Width of a terminal, in characters, from which all columns of a table are shown."""
SHORT_ID = 12
"""Number of last characters that abbreviate an id: the first ones are a time, and similar."""

MOST_ERROR = 200
"""Characters of an error in a table: each row of it as text is as wide as the widest."""
_BAR = 40
_RATES = (("enqueued", "in"), ("started", "started"), ("succeeded", "done"), ("failed", "failed"))
_WAITING = (State.WAITING, State.PARKED)


class Column(NamedTuple):
    """A column of a view.

    Attributes:
        width: In cells; 0 to share the remaining width.
        wide: Whether it is shown only on wide terminals.
    """

    title: str
    width: int = 0
    wide: bool = False


class _Row(NamedTuple):
    """A row of a view: the name or id of its subject, and a text for each column."""

    key: str
    cells: Sequence[str]


COLUMNS: Mapping[View, Sequence[Column]] = {
    View.LANES: (
        Column("LANE"), Column("WAIT", 6), Column("PARKED", 6, wide=True), Column("RUN", 5),
        Column("DEAD", 6, wide=True), Column("OLDEST", 7), Column("DONE/S", 6), Column("P50", 7),
        Column("P95", 7), Column("TARGET", 7, wide=True), Column("WORKERS", 7), Column("", 6),
    ),
    View.GATES: (
        Column("GATE"), Column("KIND", 9), Column("STATE", 7), Column("USED", 14),
        Column("PARKED", 7), Column("OPENS", 9), Column("HELD BY", 14, wide=True),
        Column("CLOSED BY"),
    ),
    View.RUNNING: (
        Column("KIND"), Column("LANE", 12), Column("STATE", 9), Column("SINCE", 8),
        Column("TRY", 4), Column("WORKER", 12), Column("JOB", SHORT_ID + 1),
    ),
    View.WAITING: (
        Column("KIND"), Column("LANE", 12), Column("TENANT", 12, wide=True), Column("STATE", 9),
        Column("DUE", 12), Column("PARKED AT", 14), Column("JOB", SHORT_ID + 1),
    ),
    View.DEAD: (
        Column("KIND", 14), Column("LANE", 12), Column("ENDED", 12), Column("TRY", 4),
        Column("ERROR"), Column("JOB", SHORT_ID + 1),
    ),
}  # fmt: skip


def rows(snapshot: Snapshot, view: View) -> list[_Row]:
    """Return the rows of a view; closed gates, old runs and overdue jobs come first."""
    now = snapshot.overview.stats.now
    match view:
        case View.LANES:
            return [_lane(snapshot, lane, now) for lane in snapshot.overview.lanes]
        case View.GATES:
            gates = sorted(snapshot.overview.gates, key=lambda one: (gate_state(one) == "open",))
            return [_gate(gate, now) for gate in gates]
        case View.RUNNING:
            names = {one.id: one.name for one in snapshot.overview.workers}
            return [_running(job, names, now) for job in sorted(snapshot.jobs, key=_since)]
        case View.WAITING:
            return [_waiting(job, now) for job in sorted(snapshot.jobs, key=lambda job: job.due_at)]
        case View.DEAD:
            return [_dead(job, now) for job in snapshot.jobs]
        case _:
            assert_never(view)


def _lane(snapshot: Snapshot, lane: LaneView, now: int) -> _Row:
    found, counts = snapshot.latencies.get(lane.name), lane.counts
    oldest = lane.oldest_due_at
    p50, p95 = (None, None) if found is None else (found.p50_ms, found.p95_ms)
    state = "paused" if lane.paused else "late" if found and found.breached else ""
    cells = (
        lane.name, str(counts.get("waiting", 0)), str(counts.get("parked", 0)),
        str(counts.get("running", 0) + counts.get("awaiting", 0)), str(counts.get("dead", 0)),
        "" if oldest is None else rounded_duration(max(0, now - oldest)),
        f"{snapshot.finished[lane.name]:.1f}" if lane.name in snapshot.finished else "",
        _span(p50), _span(p95), _span(lane.spec.target_ms), str(lane.workers), state,
    )  # fmt: skip
    return _Row(lane.name, cells)


def _gate(gate: GateState, now: int) -> _Row:
    held = ", ".join(one.job[-SHORT_ID:] for one in gate.holders[:1])
    more = f" +{gate.holder_count - 1}" if gate.holder_count > 1 else ""
    closed = f"{gate.closed_by}: {gate.closed_reason}" if gate.closed_reason else gate.closed_by
    of = capacity_text(gate)
    used = (f"{gate.used} of {of}" if of else str(gate.used)) if gate.traits.counts else ""
    state, parked = gate_state(gate), str(gate.parked) if gate.parked else ""
    cells = (gate.name, gate.kind, state, used, parked, _opens(gate, now), held + more, closed)
    return _Row(gate.name, cells)


def _running(job: JobView, names: Mapping[str, str], now: int) -> _Row:
    worker = names.get(job.worker or "") or (job.worker or "")[:SHORT_ID]
    since = rounded_duration(max(0, now - _since(job)))
    cells = (job.kind, job.lane, str(job.state), since, str(job.attempt), worker)
    return _Row(job.id, (*cells, job.id[-SHORT_ID:]))


def _waiting(job: JobView, now: int) -> _Row:
    cells = (job.kind, job.lane, job.tenant, str(job.state), _away(job.due_at, now))
    return _Row(job.id, (*cells, job.parked_at or "", job.id[-SHORT_ID:]))


def _dead(job: JobView, now: int) -> _Row:
    ended = "" if job.finished_at is None else _away(job.finished_at, now)
    line = next(iter((job.error or job.reason).splitlines()), "")
    # Masked first, because a secret that is cut may not be recognized any more.
    error = hidden_text(line[: 20 * MOST_ERROR])[:MOST_ERROR]
    return _Row(job.id, (job.kind, job.lane, ended, str(job.attempt), error, job.id[-SHORT_ID:]))


def _since(job: JobView) -> int:
    return job.runs[-1].claimed_at if job.runs else job.created_at


def _span(ms: int | None) -> str:
    return "" if ms is None else rounded_duration(ms)


def _away(at: int, now: int) -> str:
    return f"in {rounded_duration(at - now)}" if at > now else f"{rounded_duration(now - at)} ago"


def _opens(gate: GateState, now: int) -> str:
    at = gate.opens_at if gate.opens_at is not None else gate.closed_until
    if at is None:
        return ""
    # An indefinite closing ends in the year 9999.
    return f"in {rounded_duration(at - now)}" if now < at < now + 10 * 365 * 86_400_000 else ""


def fitted(columns: Sequence[Column], width: int) -> list[tuple[int, int]]:
    """Return the columns that fit a width: their indexes and widths, including the gap."""
    kept = [n for n, one in enumerate(columns) if width >= WIDE or not one.wide]
    fixed = sum(columns[n].width + 1 for n in kept if columns[n].width)
    sharing = [n for n in kept if not columns[n].width]
    share = max(8, (width - 1 - fixed) // max(1, len(sharing)))
    return [(n, columns[n].width + 1 if columns[n].width else share) for n in kept]


def cell(text: str, width: int) -> Text:
    """Return a printable text on one line, cut to a width, and coloured if it is a state."""
    made = shown(text[: 4 * width], STYLES.get(text, _ATTENTION.get(text, "")))
    made.no_wrap = True
    made.truncate(width - 1, overflow="ellipsis")
    return made


_ATTENTION = {"paused": "red", "late": "yellow"}


# ------------------------------------------------------------------------------ above the table


def counts_line(snapshot: Snapshot) -> Text:
    """Return the number of jobs by state."""
    line = Text()
    for state in State:
        number = snapshot.overview.stats.counts.get(state, 0)
        if number:
            line.append(f"{number:,} {state}", style=STYLES.get(state, ""))
            line.append("  ")
    return line or Text("no jobs", style="dim")


def rates_line(snapshot: Snapshot) -> Text:
    """Return rates per second, the oldest due job, the worst p95 wait, and the live workers."""
    stats, lanes = snapshot.overview.stats, snapshot.overview.lanes
    parts = [
        f"{word} {snapshot.rates[name]:,.1f}/s" for name, word in _RATES if name in snapshot.rates
    ]
    due = [lane.oldest_due_at for lane in lanes if lane.oldest_due_at is not None]
    parts.append(
        f"oldest due {rounded_duration(max(0, stats.now - min(due)))}" if due else "nothing is due"
    )
    waits = [one.p95_ms for one in snapshot.latencies.values() if one.p95_ms is not None]
    if waits:
        parts.append(f"p95 wait {rounded_duration(max(waits))}")
    live = sum(one.lease_until > stats.now for one in snapshot.overview.workers)
    parts.append(f"{live} worker{'' if live == 1 else 's'}")
    return Text("  ".join(parts))


def stuck(snapshot: Snapshot) -> list[str]:
    """Return one sentence for each cause that holds up jobs, that of the most jobs first."""
    now, lanes = snapshot.overview.stats.now, snapshot.overview.lanes
    queued, by_lane = _queued(snapshot.overview.stats.counts), {one.name: one for one in lanes}
    found: list[tuple[int, str]] = []
    uncounted: list[str] = []
    for gate in snapshot.overview.gates:
        how, lane = _why_closed(gate, now), by_lane.get(gate.name.removeprefix("lane:"))
        number = gate.parked
        if gate.name == "all":
            number = queued
        elif gate.name.startswith("lane:") and lane is not None:
            number = _queued(lane.counts)
        if how and number:
            found.append((number, f"{_wait(number)} at {gate.name}: {how}"))
        elif how:
            uncounted.append(f"at {gate.name}: {how}")
    rest = queued - sum(number for number, _ in found)
    short = [one for lane in lanes for one in _short_of_handlers(snapshot, lane)]
    # No store counts the jobs that wait for a shared gate: they are among the remaining ones, or if
    # there are none, among those of lanes without a worker.
    if (others := rest - sum(number for number, _ in short)) > 0:
        rest = others
    else:
        rest = min(rest, sum(_queued(lane.counts) for lane in lanes if not lane.workers))
    found += short
    found += [(rest, f"up to {_wait(rest)} {one}") for one in uncounted if rest > 0]
    return [sentence for _, sentence in sorted(found, key=lambda one: -one[0])]


def _short_of_handlers(snapshot: Snapshot, lane: LaneView) -> Iterator[tuple[int, str]]:
    late, number = snapshot.latencies.get(lane.name), _queued(lane.counts)
    if number and not lane.workers:
        yield number, f"{_wait(number)} in the lane {lane.name}: no live worker serves it"
    elif late is not None and late.handlers_missing:
        yield number, f"{_wait(number)} in the lane {lane.name}: more handlers are needed"
    elif late is not None and late.breached and late.p95_ms and late.target_ms:
        wait, target = rounded_duration(late.p95_ms), rounded_duration(late.target_ms)
        yield 0, f"the lane {lane.name} is late: p95 {wait}, its target is {target}"


def _why_closed(gate: GateState, now: int) -> str:
    opens = _opens(gate, now)
    if gate.closed_by or gate.closed_until is not None:
        reason = f" ({gate.closed_reason})" if gate.closed_reason else ""
        until = f", opens {opens}" if opens else ""
        return f"closed by {gate.closed_by or 'an operator'}{reason}{until}"
    if gate_state(gate) not in {"full", "closed"}:
        return ""
    full = f"full, {gate.used} of {capacity_text(gate)}" if gate.capacity is not None else "closed"
    oldest = (
        f", held for {rounded_duration(max(0, now - gate.holders[0].since))}"
        if gate.holders
        else ""
    )
    return f"{full}{oldest}{f', opens {opens}' if opens else ''}"


def _queued(counts: Mapping[str, int]) -> int:
    return sum(counts.get(state, 0) for state in _WAITING)


def _wait(number: int) -> str:
    return counted(f"{number:,}", "job waits", "jobs wait")


# ---------------------------------------------------------------------------------- one job


def job_text(job: JobView, clock: LocalClock, now: int) -> Text:
    """Return a job with its timeline, runs and trail; secrets are masked."""
    job = _without_secrets(job)
    lines = [f"{name:<11} {value}" for name, value in job_facts(clock, job) if value]
    lines += ["", "timeline    . waiting  # at gates  = running  ~ awaiting"]
    lines += [f"  {one}" for one in _timeline(job, now)]
    for run in job.runs[-5:]:
        lines.append("")
        row = zip(RUN_COLUMNS, run_row(clock, run), strict=True)
        lines += [f"  {name.lower():<11} {value}" for name, value in row if value]
    error = job.error.rstrip().splitlines()
    lines += ["", *error] if len(error) > 1 else []
    if job.trail:
        lines += ["", "trail"]
        lines += [
            f"  {clock.at(one.at)}  {one.what}  {one.author}  {one.reason}" for one in job.trail
        ]
    return as_text(lines)


def as_text(lines: Iterable[str]) -> Text:
    """Return lines as printable text, with secrets masked."""
    return Text("\n").join(shown(hidden_text(line)) for line in lines)


def facts_text(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return names and values, one pair per line; empty values are omitted."""
    return [f"{name:<18} {value}" for name, value in pairs if value]


def _without_secrets(job: JobView) -> JobView:
    return replace(
        job, args=_masked(job.args) or b"", progress=_masked(job.progress),
        result=_masked(job.result),
    )  # fmt: skip


def _masked(data: bytes | None) -> bytes | None:
    if data is None:
        return None
    try:
        return to_json(hidden_value(msgspec.json.decode(data)))
    except msgspec.DecodeError:
        return hidden_text(data.decode(errors="replace")).encode()


def _timeline(job: JobView, now: int) -> Iterator[str]:
    """Yield one bar for each of the last runs, and for the current wait."""
    for run in job.runs[-5:]:
        yield _bar(f"run {run.run}", _spans(job, run, now))
    if job.state in {State.WAITING, State.PARKED}:
        yield _bar("now", [(".", "waits for", max(0, now - max(job.due_at, job.created_at)))])


def _spans(job: JobView, run: RunView, now: int) -> list[tuple[str, str, int]]:
    times = run_times(job, run, now)
    return [
        (".", "waited", times.for_worker),
        ("#", "at gates", times.at_gates),
        ("=", "ran", times.ran),
        ("~", "awaited", times.awaited),
    ]


def _bar(name: str, spans: Sequence[tuple[str, str, int]]) -> str:
    whole = max(1, sum(ms for _, _, ms in spans))
    bar = "".join(mark * max(1, _BAR * ms // whole) for mark, _, ms in spans if ms)
    words = ", ".join(f"{word} {rounded_duration(ms)}" for _, word, ms in spans if ms)
    return f"{name:<6} {bar}  {words}"
