"""A server or a worker of the system `calls` that kills itself at a given point.

No production code knows about this: the code at the points is wrapped here, in the process.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.cli import main as command
from headway.cli.commands import serve, worker
from headway.core.errors import ProviderUnsure
from headway.runtime.app import App
from headway.runtime.job import Job
from headway.systems.calls import call_events, kinds, lead_routes, stages
from headway.systems.telephony.http import ProviderHttp
from headway.systems.telephony.twilio import Account
from headway.systems.telephony.voice import CallEvent
from tests.torture.witness import Witness

PRELOADED = (serve, worker)
LEASE = "1500ms"
SENT = {
    "http11.send_request_headers.complete": "request half sent",
    "http11.send_request_body.complete": "request sent",
    "http11.receive_response_headers.complete": "reply half read",
}

Function = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Life:
    """The parameters of a process.

    Attributes:
        folder: folder of headway.toml, the witness's file and the log.
        arguments: arguments of the command.
        point: the point at which it kills itself; empty for none.
        nth: how often it reaches that point before it does.
        plant: a fault to plant.
    """

    folder: Path
    arguments: tuple[str, ...]
    point: str = ""
    nth: int = 1
    plant: str = ""


def live(life: Life) -> None:
    """Run a process from start to exit."""
    log = os.open(life.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    os.chdir(life.folder)
    os.environ["HEADWAY_CONFIG"] = str(life.folder / "headway.toml")
    _Watched(life).note("began", role=life.arguments[0], point=life.point, nth=life.nth)
    if life.plant:
        PLANTS[life.plant]()
    sys.exit(command.call(life.arguments))


class _Watched:
    """Wraps the code at the points, and everything reported to the witness."""

    def __init__(self, life: Life) -> None:
        self._witness = Witness(life.folder / "witness.jsonl")
        self.note = self._witness.note
        self._point, self._left = life.point, life.nth
        self._around(kinds, "check", "claimed, not checked", "checked, not told")
        self._around(kinds, "place_call", "given a line", "handler at its end")
        self._around(Job, "hand_over", "before the hand-over", "handed over")
        self._around(Job, "known_as", "", "known")
        self._around(Account, "dial", "", "dialled, not known")
        self._around(lead_routes, "take_leads", "", "lead stored, not answered")
        for owner, name, wrap in (
            (ProviderHttp, "_exchange", self._exchange),
            (Account, "look_up", self._look_up),
            (call_events, "apply_event", self._apply_event),
            (App, "worker", _short_lease),
        ):
            setattr(owner, name, wrap(getattr(owner, name)))

    def meet(self, point: str) -> None:
        if not point or point != self._point:
            return
        self._left -= 1
        if self._left == 0:
            self._witness.note("killed", point=point)
            os.kill(os.getpid(), signal.SIGKILL)

    def _around(self, owner: object, name: str, before: str, after: str) -> None:
        inner: Function = getattr(owner, name)

        async def watched(*args: Any, **named: Any) -> Any:
            self.meet(before)
            result = await inner(*args, **named)
            self.meet(after)
            return result

        setattr(owner, name, watched)

    def _exchange(self, inner: Function) -> Function:
        async def send(http: ProviderHttp, request: Any, auth: Any) -> Any:
            if request.method == "POST":
                self.meet("before the request")
                told = request.extensions["trace"]

                async def watch(event: str, more: object) -> None:
                    await told(event, more)
                    self.meet(SENT.get(event, ""))

                request.extensions = {**request.extensions, "trace": watch}
            return await inner(http, request, auth)

        return send

    def _look_up(self, inner: Function) -> Function:
        async def look_up(account: Account, sought: Any) -> Any:
            self.meet("before the provider is asked")
            at = time.time_ns() // 1_000_000
            try:
                found = await inner(account, sought)
            except ProviderUnsure:
                self._witness.note("asked", ref=sought.ref, at=at, told="nothing")
                raise
            is_call = isinstance(found, CallEvent)
            told = str(found.status) if is_call else "unknown"
            sid = found.call_id if is_call else None
            self._witness.note("asked", ref=sought.ref, at=at, told=told, sid=sid)
            self.meet("provider has answered")
            return found

        return look_up

    def _apply_event(self, inner: Function) -> Function:
        async def apply_event(context: Any, event: Any) -> Any:
            facts = {"ref": event.ref, "sid": event.call_id, "status": event.status}
            self._witness.note("webhook", **facts)
            self.meet("webhook comes")
            answer = await inner(context, event)
            self._witness.note("webhook applied", **facts, answer=answer)
            self.meet("webhook told, not answered")
            return answer

        return apply_event


def _short_lease(inner: Callable[..., Any]) -> Callable[..., Any]:
    def worker(app: App, **options: Any) -> Any:
        return inner(app, **options, lease=LEASE)

    return worker


def _hand_over_late() -> None:
    """Plant the fault that a lead is handed over after its call was placed."""
    hand_over, dial = Job.hand_over, stages.dial
    waiting: dict[str, tuple[Job, str]] = {}

    async def not_yet(job: Job, *, timeout: str) -> None:  # noqa: ASYNC109  (the original's own)
        waiting[job.ref] = job, timeout

    async def early(telephony: Any, order: Any, providers: Any) -> Any:
        dialled = await dial(telephony, order, providers)
        job, timeout = waiting.pop(order(providers[0]).ref)
        await hand_over(job, timeout=timeout)
        return dialled

    Job.hand_over = not_yet  # type: ignore[method-assign,assignment]  # the fault
    stages.dial = early


def _dial_again() -> None:
    """Plant the fault that an unknown outcome is treated as a refusal."""
    dial = stages.dial

    async def again(telephony: Any, order: Any, providers: Any) -> Any:
        try:
            return await dial(telephony, order, providers)
        except ProviderUnsure:
            return await dial(telephony, order, providers)

    stages.dial = again


PLANTS: dict[str, Callable[[], None]] = {
    "hand over late": _hand_over_late,
    "dial again": _dial_again,
}
