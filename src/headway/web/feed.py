"""Live fragments of pages: browsers with the same view share one read per interval."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Literal
from uuid import uuid4

import msgspec

from headway.core.errors import CallerError, HeadwayError, StoreError, TooManyRequests
from headway.server.overview import FeedMessage, Subscriber
from headway.server.service import Service
from headway.web.page import DashboardPage, PageView, TemplateContext
from headway.web.rendering import fragments

MOST_WATCHERS = 500
_BUG = "bug"

_Read = Callable[[DashboardPage, PageView], Awaitable[TemplateContext]]
"""Reads the context of a page's template."""

_log = logging.getLogger("headway.web")
_encode = msgspec.json.Encoder().encode


class Feed:
    """The streams of all pages that are open in some browser."""

    def __init__(self, service: Service, facts: _Read) -> None:
        """Start without streams; `service` runs their tasks."""
        self._service = service
        self._facts = facts
        self._streams: dict[Hashable, Stream] = {}
        self._closing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of watching browsers."""
        return sum(len(one.watchers) for one in self._streams.values())

    def check_room(self) -> None:
        """Check that one more browser may watch.

        Raises:
            TooManyRequests: 500 browsers are watching already.
        """
        if len(self) >= MOST_WATCHERS:
            message = f"{MOST_WATCHERS} pages are already open"
            raise TooManyRequests(message, hint="close one")

    def join(self, page: DashboardPage, view: PageView) -> tuple[Stream, Subscriber]:
        """Add a browser; its first message has all fragments.

        Callers with the same permissions and scope share a stream for the same page and values.
        """
        if self._closing is None:
            self._closing = self._service.spawn(self._close_on_stop(), "dashboard's end")
        caller = view.caller
        scope = (caller.may, caller.tenants, caller.lanes)
        key = (page.path, tuple(sorted(view.values.items())), scope)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream(key, page, view, self._facts)
        return stream, stream.add(self._service)

    def leave(self, stream: Stream, watcher: Subscriber) -> None:
        """Remove a browser; its stream ends with the last one."""
        if stream.drop(watcher):
            self._streams.pop(stream.key, None)

    def refresh(self) -> None:
        """Refresh all streams at once, because an action has changed something."""
        for one in self._streams.values():
            one.refreshed.set()

    async def _close_on_stop(self) -> None:
        await self._service.stopping.wait()
        for stream in self._streams.values():
            for one in stream.watchers:
                one.close()


class Stream:
    """One page with one set of values, for callers with the same permissions and scope.

    Attributes:
        key: Identifies the page, its values and the callers' scope.
        refreshed: Set to end the pause before the next read.
    """

    def __init__(self, key: Hashable, page: DashboardPage, view: PageView, facts: _Read) -> None:
        self.key = key
        self.watchers: set[Subscriber] = set()
        self.refreshed = asyncio.Event()
        self._page = page
        self._view = view
        self._facts = facts
        self._parts: Mapping[str, str] = {}
        self._version: object = None
        self._now = 0
        self._fault: Mapping[str, str] = {}
        self._reading: asyncio.Task[None] | None = None
        self._start = uuid4().hex[:8]
        self._number = 0

    def add(self, service: Service) -> Subscriber:
        """Add a browser; the first one starts the reading task."""
        watcher = Subscriber(self._message("whole", self._parts))
        if self._fault:
            away = self._message("away", self._fault)
            watcher.put(away, away)
        self.watchers.add(watcher)
        if service.stopping.is_set():
            watcher.close()
        elif self._reading is None or self._reading.done():
            self._reading = service.spawn(self._keep_reading(service), f"page {self._page.path}")
        return watcher

    def drop(self, watcher: Subscriber) -> bool:
        """Remove a browser; return whether it was the last, which stops the reading task."""
        self.watchers.discard(watcher)
        if self.watchers:
            return False
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        return True

    async def _keep_reading(self, service: Service) -> None:
        while True:
            try:
                await self._once()
            except HeadwayError as error:
                self._report_failure(error.code, error)
            except Exception as error:  # noqa: BLE001  (a bug in a page must not end its stream)
                self._report_failure(_BUG, error)
            await service.timing.wait(self.refreshed, service.options.events_each_s)
            self.refreshed.clear()

    async def _once(self) -> None:
        facts = await self._facts(self._page, self._view)
        version = facts.get("version")
        parts = self._parts
        if version is None or version != self._version:
            parts = fragments(self._page.package, self._page.template, self._page.fragments, facts)
        changed = {name: text for name, text in parts.items() if self._parts.get(name) != text}
        self._parts, self._version, self._now = parts, version, time_of(facts)
        if self._fault:
            self._fault = {}
            self._send(self._message("whole", parts))
        elif changed:
            self._send(self._message("change", changed))

    def _report_failure(self, code: str, error: Exception) -> None:
        fault = {"code": code, "text": _text_of(error)}
        if fault != self._fault:
            self._fault = fault
            bug = error if code == _BUG else None
            _log.warning(
                "dashboard page failed path=/%s error=%s", self._page.path, error, exc_info=bug
            )
            self._send(self._message("away", fault))

    def _send(self, message: FeedMessage) -> None:
        whole = message if message.event == "away" else self._message("whole", self._parts)
        for one in self.watchers:
            one.put(message, whole)

    def _message(
        self, event: Literal["whole", "change", "away"], parts: Mapping[str, str]
    ) -> FeedMessage:
        self._number += 1
        data = _encode({"now": self._now, "parts": parts}).decode()
        return FeedMessage(id=f"{self._start}-{self._number}", event=event, data=data)


def time_of(facts: Mapping[str, object]) -> int:
    """Return the store's time in a template's context."""
    now = facts["now"]
    return now if isinstance(now, int) else 0


def _text_of(error: Exception) -> str:
    """Return why a page is not updated, for its viewers."""
    match error:
        case StoreError():
            return "the store does not answer"
        case CallerError():
            return error.message
        case _:
            return "this page has failed; the log of the server has the error"
