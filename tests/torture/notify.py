"""Notifications while engines die or stall: each is sent once, or reported as unknown.

A steady load, with opt-outs just before the send; one engine is killed, the other is stopped for
longer than its lease. Then a burst that is due at a single time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from twilio.request_validator import RequestValidator

from tests.torture.checker import Violation
from tests.torture.notify_judge import Case, Planned, Reported, Span, judge
from tests.torture.notify_providers import Providers, providing
from tests.torture.notify_site import AT_ONCE, CHANNELS, CONCURRENCY, FROM, TOKEN, Engines
from tests.torture.site import Site

RECIPIENTS, LEAVERS = 500, 40
SHARES = {"email": 0.6, "sms": 0.2, "webhook": 0.2}
BATCH, PAGE = 1_000, 1_000
AROUND_S = (-2.0, -1.0, -0.5, 0.0, 0.3, 0.6, 1.0, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0)
"""When a leaver's notifications are due, relative to its opt-out."""
URGENT = 0.05
QUIET_S = 6.0
"""After this long without arrivals, all have arrived."""


@dataclass(kw_only=True, slots=True)
class Size:
    """Scale of the run.

    Attributes:
        steady: notifications of the steady load.
        seconds: period over which they are due.
        burst: notifications that are due at the same time.
        rate: messages per second of all channels together; each has its share.
        lease_s: lease of the engines.
    """

    steady: int
    seconds: float
    burst: int
    rate: int
    lease_s: int = 10


@dataclass(slots=True)
class _Seen:
    ids: dict[str, int] = field(default_factory=dict[str, int])
    opted_out: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    reported: set[int] = field(default_factory=set[int])
    shaken: list[Span] = field(default_factory=list[Span])


def notify_and_kill(
    folder: Path, site: Site, seed: int, size: Size, say: Callable[[str], None]
) -> tuple[list[str], list[Violation]]:
    """Send notifications while one engine is killed and another stalls.

    Returns:
        Lines to print, and violations.
    """
    return asyncio.run(_run(folder, site, seed, size, say))


async def _run(
    folder: Path, site: Site, seed: int, size: Size, say: Callable[[str], None]
) -> tuple[list[str], list[Violation]]:
    draw, seen = random.Random(f"notify {seed}"), _Seen()
    rates = {channel: max(1, int(size.rate * share)) for channel, share in SHARES.items()}
    engines = Engines(folder, site.url)
    async with providing(seed) as providers, httpx.AsyncClient(timeout=30) as http:
        try:
            await engines.open(providers, rates, size.lease_s)
            await _people(engines, http, providers)
            begin_at = _now() + 4_000 + (size.steady + size.burst) * 2
            planned = list(_plan(draw, size, begin_at))
            await _ask_all(engines, http, planned, seen, say)
            late_s = (_now() - begin_at) / 1000
            if late_s > 0:
                say(f"the machine is slow: taking in ended {late_s:.0f} s after the first was due")
            reporting = asyncio.create_task(_report(engines, http, providers, seen))
            await asyncio.gather(
                _shake(engines, size, begin_at, seen, say),
                *(_leave(engines, http, one, planned, seen) for one in _leavers()),
            )
            await _until(begin_at + int(size.seconds * 1000) + 5_000)
            await _drained(engines, http, providers, say)
            joined = asyncio.create_task(providers.reports.join())
            await asyncio.wait({joined, reporting}, return_when=asyncio.FIRST_COMPLETED)
            if reporting.done():
                reporting.result()
            reporting.cancel()
            latest = await _latest(engines, http, planned, providers, seen)
            case = Case(
                planned={one.number: one for one in planned},
                states=await _reported(engines, http, seen),
                arrivals=providers.arrivals,
                opted_out=seen.opted_out,
                reported=seen.reported,
                shaken=seen.shaken,
                closed=[(channel, at - 100, at + 2_500) for channel, at in providers.limited],
                rates=rates,
                ahead=2 * (AT_ONCE + CONCURRENCY),
                stood=providers.stood,
            )
        finally:
            await engines.close()
    lines, found = judge(case)
    more = f"{len(providers.limited)} answers of 429, {len(seen.reported)} reported delivered"
    warned = [f"{count} times: {what}" for what, count in engines.warnings().most_common(5)]
    return [*lines, f"{more}, {len(seen.opted_out)} opted out", latest, *warned], found


def _plan(draw: random.Random, size: Size, begin_at: int) -> Iterator[Planned]:
    number = 0
    channels, weights = list(SHARES), list(SHARES.values())
    for n in range(size.steady + size.burst):
        steady = n < size.steady
        due_at = begin_at + int(size.seconds * 1000) + 5_000
        if steady:
            due_at = begin_at + int(n * size.seconds * 1000 / size.steady)
        yield Planned(
            number=(number := number + 1),
            recipient=f"r{draw.randrange(RECIPIENTS)}",
            channel=draw.choices(channels, weights)[0],
            due_at=due_at,
            part="steady" if steady else "burst",
            urgent=draw.random() < URGENT,
        )
    for n, leaver in enumerate(_leavers()):
        out_at = begin_at + int((n + 1) / (LEAVERS + 1) * size.seconds * 1000)
        for seconds in AROUND_S:
            yield Planned(
                number=(number := number + 1),
                recipient=leaver,
                channel=CHANNELS[n % len(CHANNELS)],
                due_at=out_at + int(seconds * 1000),
                part="leaver",
                urgent=n % 2 == 0,
            )


def _leavers() -> Sequence[str]:
    return [f"leaver{n}" for n in range(LEAVERS)]


async def _people(engines: Engines, http: httpx.AsyncClient, providers: Providers) -> None:
    rows = ["id,email,phone,webhook_url"]
    names = [f"r{n}" for n in range(RECIPIENTS)] + list(_leavers())
    for n, name in enumerate(names):
        hook = f"http://127.0.0.1:{providers.http_port}/hook"
        rows.append(f"{name},{name}@example.org,+1415555{n:04d},{hook}")
    body, csv = "\n".join(rows).encode(), {"Content-Type": "text/csv"}
    reply = await engines.ask(http, "POST", "/recipients/import", content=body, headers=csv)
    assert reply.is_success, reply.text


async def _ask_all(
    engines: Engines,
    http: httpx.AsyncClient,
    planned: Sequence[Planned],
    seen: _Seen,
    say: Callable[[str], None],
) -> None:
    begun = time.monotonic()
    ordered = sorted(planned, key=lambda one: one.due_at)
    for start in range(0, len(ordered), BATCH):
        step = ordered[start : start + BATCH]
        reply = await engines.ask(http, "POST", "/notifications", [_body(one) for one in step])
        assert reply.is_success, reply.text
        rows = reply.json()["notifications"]
        for one, row in zip(step, rows, strict=True):
            seen.ids[row["id"]] = one.number
    say(f"{len(planned)} taken in within {time.monotonic() - begun:.0f} s")


def _body(one: Planned) -> dict[str, Any]:
    return {
        "recipient": one.recipient,
        "channel": one.channel,
        "title": "Torture",
        "text": f"No. {one.number}.",
        "scheduled_at": one.due_at,
        "category": ("otp", "alert")[one.number % 2] if one.urgent else "news",
        "priority": ("high", "normal", "low")[one.number % 3],
        "dedupe_key": f"torture {one.number}",
    }


async def _shake(
    engines: Engines, size: Size, begin_at: int, seen: _Seen, say: Callable[[str], None]
) -> None:
    after_ms = (size.lease_s + 3) * 1000
    await _until(begin_at + int(size.seconds * 250))
    begun = _now()
    await engines.kill("two")
    say("engine two was killed")
    await _until(begun + after_ms)
    seen.shaken.append(("an engine was killed", begun - 1_000, _now()))
    await _until(begin_at + int(size.seconds * 600))
    begun = _now()
    await engines.freeze("one", size.lease_s * 1.5)
    say(f"engine one stood still for {(_now() - begun) / 1000:.0f} s")
    await _until(_now() + 3_000)
    seen.shaken.append(("an engine stood still", begun - 1_000, _now()))


async def _leave(
    engines: Engines,
    http: httpx.AsyncClient,
    leaver: str,
    planned: Sequence[Planned],
    seen: _Seen,
) -> None:
    own = [one for one in planned if one.recipient == leaver]
    await _until(own[AROUND_S.index(0.0)].due_at)
    if own[0].channel == "sms":
        phone = (await engines.ask(http, "GET", f"/recipients/{leaver}")).json()["phone"]
        words = {"MessageSid": f"SM{own[0].number:032x}", "From": phone, "To": FROM, "Body": "STOP"}
        reply = await _as_twilio(engines, http, "/notifications/hooks/twilio/texts", words)
    else:
        body = {"preferences": {"opt_out": [own[0].channel]}}
        reply = await engines.ask(http, "PATCH", f"/recipients/{leaver}", body)
    assert reply.is_success, reply.text
    seen.opted_out[leaver, own[0].channel] = _now()


async def _report(
    engines: Engines, http: httpx.AsyncClient, providers: Providers, seen: _Seen
) -> None:
    while True:
        number, url, sid = await providers.reports.get()
        path = url.removeprefix(engines.url)
        said = {"MessageSid": sid, "MessageStatus": "delivered"}
        reply = await _as_twilio(engines, http, path, said)
        assert reply.is_success, reply.text
        seen.reported.add(number)
        providers.reports.task_done()


async def _as_twilio(
    engines: Engines, http: httpx.AsyncClient, path: str, form: dict[str, str]
) -> httpx.Response:
    signature = RequestValidator(TOKEN).compute_signature(engines.url + path, form)
    headers = {"X-Twilio-Signature": signature}
    return await engines.ask(http, "POST", path, data=form, headers=headers)


async def _drained(
    engines: Engines, http: httpx.AsyncClient, providers: Providers, say: Callable[[str], None]
) -> None:
    """Return once no more arrive and none is queued."""
    count, quiet = -1, time.monotonic()
    while time.monotonic() - quiet < QUIET_S or await _queued(engines, http):
        await asyncio.sleep(0.5)
        if len(providers.arrivals) != count:
            if len(providers.arrivals) // 10_000 != count // 10_000:
                say(f"{len(providers.arrivals)} arrived")
            count, quiet = len(providers.arrivals), time.monotonic()
        elif time.monotonic() - quiet > 20 * QUIET_S:
            say("some are queued forever")
            return


async def _queued(engines: Engines, http: httpx.AsyncClient) -> bool:
    async for _ in _rows(engines, http, "&status=QUEUED"):
        return True
    return False


async def _reported(engines: Engines, http: httpx.AsyncClient, seen: _Seen) -> dict[int, Reported]:
    found: dict[int, Reported] = {}
    async for row in _rows(engines, http, ""):
        found[seen.ids[row["id"]]] = Reported(row["status"], row["reason"])
    return found


async def _latest(
    engines: Engines,
    http: httpx.AsyncClient,
    planned: Sequence[Planned],
    providers: Providers,
    seen: _Seen,
) -> str:
    """Return the history of the notification in the steady load that arrived latest."""
    due = {one.number: one.due_at for one in planned if one.part == "steady"}
    late = {one.number: one.at - due[one.number] for one in providers.arrivals if one.number in due}
    if not late:
        return "nothing came"
    number = max(late, key=late.__getitem__)
    id_ = next(id_ for id_, one in seen.ids.items() if one == number)
    row = (await engines.ask(http, "GET", f"/notifications/{id_}")).json()
    events = [
        f"{one['status']} {one['at'] - due[number]:+} ms {one['reason'][:100]}".strip()
        for one in row["events"][1:]
    ]
    told = f"{row['channel']}, {row['attempts']} attempts, {'; '.join(events)}"
    return f"the latest came after {late[number]} ms: {told}"


async def _rows(engines: Engines, http: httpx.AsyncClient, more: str) -> Any:
    cursor = ""
    while True:
        path = f"/notifications?limit={PAGE}{more}{cursor}"
        page = (await engines.ask(http, "GET", path)).json()
        for row in page["rows"]:
            yield row
        if page["cursor"] is None:
            return
        cursor = f"&cursor={page['cursor']}"


async def _until(at: int) -> None:
    await asyncio.sleep(max(0, at - _now()) / 1000)


def _now() -> int:
    return time.time_ns() // 1_000_000
