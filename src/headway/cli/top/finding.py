"""What takes many reads of a store, and of a server one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.client.calls import HttpCall, HttpReply
from headway.client.queries import underway_call
from headway.client.replies import read_record
from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView
from headway.runtime.latency import LaneLatency, lane_latencies
from headway.server.overview import Overview, read_overview
from headway.server.underway import underway_jobs


class Finder(Protocol):
    """Finds it, in a store or at a server.

    Raises:
        HeadwayError: the store cannot be read now, or the server refuses.
    """

    async def overview(self) -> Overview:
        """Return what the whole store looks like."""
        ...

    async def latencies(self, lanes: Sequence[str]) -> Sequence[LaneLatency]:
        """Return the latency of each of these lanes."""
        ...

    async def underway(self, query: JobsQuery) -> Sequence[JobView]:
        """Return waiting, parked and running jobs, as `underway_jobs`."""
        ...


@dataclass(frozen=True, slots=True)
class StoreFinder:
    """Finds it in a store."""

    store: Store

    async def overview(self) -> Overview:
        """As `Finder.overview`."""
        return await read_overview(self.store)

    async def latencies(self, lanes: Sequence[str]) -> Sequence[LaneLatency]:
        """As `Finder.latencies`."""
        return await lane_latencies(self.store, lanes)

    async def underway(self, query: JobsQuery) -> Sequence[JobView]:
        """As `Finder.underway`."""
        return await underway_jobs(self.store, query)


@dataclass(frozen=True, slots=True)
class ServerFinder:
    """Lets a server find it; a request each.

    Attributes:
        ask: makes a call.
    """

    ask: Callable[[HttpCall], Awaitable[HttpReply]]

    async def overview(self) -> Overview:
        """As `Finder.overview`."""
        reply = await self.ask(HttpCall(method="GET", path="/v1/overview"))
        return read_record(Overview, reply.json)

    async def latencies(self, lanes: Sequence[str]) -> Sequence[LaneLatency]:
        """As `Finder.latencies`."""
        params = (("latency", "true"), *(("name", one) for one in lanes))
        reply = await self.ask(HttpCall(method="GET", path="/v1/lanes", params=params))
        return [read_record(LaneLatency, one["latency"]) for one in reply.json["rows"]]

    async def underway(self, query: JobsQuery) -> Sequence[JobView]:
        """As `Finder.underway`."""
        reply = await self.ask(underway_call(query))
        return [read_record(JobView, one) for one in reply.json["rows"]]
