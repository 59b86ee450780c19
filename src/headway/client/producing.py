"""What a program sends and signals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from headway.client.connected import Connected
from headway.client.fields import Fields
from headway.client.job_body import job_body
from headway.client.plain_body import body_with_id, plain_body
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.signals import SignalReply
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.job import MAX_BATCH, NewJob
from headway.runtime.kind import Kind
from headway.runtime.sent import Sent
from headway.runtime.signals import SignalOptions, read_signal


class Producing(Connected):
    """Sends jobs, and signals those that await something."""

    def send(
        self,
        kind: Kind | str,
        /,
        *,
        also: Mapping[str, object] | None = None,
        **given: Any,  # noqa: ANN401  (checked by the kind, or by the server)
    ) -> Sent:
        """Makes a job; when this returns, it is stored.

        Args:
            kind: a kind of an App in this program, or the name of one that a worker elsewhere
                has.
            also: of a kind by name: further fields of the job as the HTTP API has them, such as
                `{"gates": ["numbers"], "retry": {"attempts": 3}}`.
            given: the handler's arguments, and the options of `Kind.make`.

        Returns:
            Its id, and whether this call made it.

        Raises:
            CallerError: an argument or option is refused; nothing was written.
            AccessError: the token is not for this; nothing was written.
            StoreUnavailable: the server cannot be reached; nothing was written.
            OutcomeUnknown: no answer came; the same call with the same `job_id` or `key` tells.
        """
        return self.wait_for(self.send_async(kind, also=also, **given))

    async def send_async(
        self,
        kind: Kind | str,
        /,
        *,
        also: Mapping[str, object] | None = None,
        **given: Any,  # noqa: ANN401  (checked by the kind, or by the server)
    ) -> Sent:
        """As `send`, for callers that can await.

        Raises:
            InvalidValue: a kind that is declared says the rest itself.
        """
        if isinstance(kind, Kind):
            if also:
                message = f"the kind {kind.name!r} says the rest itself"
                raise InvalidValue(message, hint="leave `also` out, or give the kind's name")
            return await self._send_of(kind, kind.make(**given))
        reply = await self.post("/v1/jobs", plain_body(kind, given, also or {}))
        return Sent(reply.json["id"], reply.json["created"])

    def send_many(self, jobs: Iterable[NewJob | Mapping[str, object]]) -> list[Sent]:
        """Makes many jobs, in steps of 1000; each step is stored whole or not at all.

        Args:
            jobs: from a kind's `make`, or as the HTTP API has them:
                `{"kind": "send_mail", "args": {...}}`. Their gates must be declared already, as
                by an `App` on this server, which sends them as well.

        Returns:
            For each job, in this order, its id and whether this call made it.

        Raises:
            CallerError: a step is refused; those before it are stored.
            StoreError: the server cannot do it now; those before it are stored.
        """
        return self.wait_for(self.send_many_async(jobs))

    async def send_many_async(self, jobs: Iterable[NewJob | Mapping[str, object]]) -> list[Sent]:
        """As `send_many`, for callers that can await."""
        sent: list[Sent] = []
        now = self.remote.wall_at()
        step: list[Fields] = []
        for one in jobs:
            step.append(job_body(one, now) if isinstance(one, NewJob) else body_with_id(one))
            if len(step) == MAX_BATCH:
                sent += await self._send_step(step)
                step = []
        return sent + (await self._send_step(step) if step else [])

    def signal(self, key: str, *, event: str, **options: Unpack[SignalOptions]) -> SignalReply:
        """Tells what the outside world says about a job that awaits it.

        Args:
            key: the job's reference, or a key that it is known as.
            event: the event's id; each is applied once.
            options: see `SignalOptions`.

        Returns:
            What became of it.

        Raises:
            CallerError: the signal says nothing or too much.
            StoreError: the server cannot do it now.
        """
        return self.wait_for(self.signal_async(key, event=event, **options))

    async def signal_async(
        self, key: str, *, event: str, **options: Unpack[SignalOptions]
    ) -> SignalReply:
        """As `signal`, for callers that can await."""
        return await self.remote.signal(read_signal(key, event, options))

    async def _send_step(self, step: list[Fields]) -> list[Sent]:
        said = (await self.post("/v1/jobs", step)).json
        return [Sent(one["id"], one["created"]) for one in said["jobs"]]

    async def _send_of(self, kind: Kind, job: NewJob) -> Sent:
        try:
            return Sent(*(await self.remote.enqueue([job]))[0])
        except UnknownGate:
            # As an App declares its gates when it first sends.
            items = tuple(DeclareGate(spec=spec) for spec in kind.gates)
            await self.remote.define(DefineRequest(items=items, author=kind.name))
            return Sent(*(await self.remote.enqueue([job]))[0])
