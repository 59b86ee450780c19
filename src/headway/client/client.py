"""The client: a program's connection to a server."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack
from uuid import uuid4

from headway.client.address import read_address
from headway.client.queries import read_claim
from headway.client.remote_store import RemoteStore
from headway.client.requests import Fields, body_with_id, job_body, plain_body
from headway.client.work_requests import ClaimAsked, claim_call, settle_call
from headway.contract.claims import BeatReply, BeatRequest, ClaimReply
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.operate import ActRequest, Edit, Verb
from headway.contract.outcomes import Outcome, Verdict
from headway.contract.signals import SignalReply
from headway.contract.store import Sent, Store
from headway.contract.views import JobQuery, JobsQuery, JobView, Page, Query, WhyQuery, WhyView
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.job import NewJob
from headway.core.state import State
from headway.runtime import event_loop
from headway.runtime.app import App, moved
from headway.runtime.event_loop import Background
from headway.runtime.inserting import send_in_steps
from headway.runtime.kind import Kind
from headway.runtime.kind_options import refuse_unknown
from headway.runtime.records import encode
from headway.runtime.signals import SignalOptions, read_signal
from headway.runtime.timing import Timing
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import WorkerOptions

Answer = TypeVar("Answer")
Result = TypeVar("Result")
Given = ParamSpec("Given")


class JobsAsked(TypedDict, total=False):
    """Which jobs; what is left out stands for any.

    Attributes:
        lane: only of this lane.
        tenant: only of this tenant.
        kind: only of this kind.
        states: only in these.
        key: only the job that has this key.
        subject: only about this.
        newest: newest arrival first.
        cursor: of the page before.
        limit: 1 to 1000.
    """

    lane: str
    tenant: str
    kind: str
    states: tuple[State, ...]
    key: str
    subject: str
    newest: bool
    cursor: str | None
    limit: int


def _waiting(
    work: Callable[Concatenate[Client, Given], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Client, Given], Result]:
    """Return the same method for callers that wait."""

    @wraps(work)
    def wait(client: Client, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return client.wait_for(work(client, *args, **kwargs))

    wait.__name__ = work.__name__.removesuffix("_async")
    wait.__qualname__ = work.__qualname__.removesuffix("_async")
    return wait


class Client:
    """A program's connection to a server: produces, signals, reads, and works.

    Each method exists twice: for callers that wait, and with `_async` for callers that await.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: object = "30s",
        patience: object = "10s",
        timing: Timing | None = None,
    ) -> None:
        """Make it; nothing is opened before the first call.

        Args:
            url: of the server; if not given, HEADWAY_URL in the environment, else
                "http://127.0.0.1:8080".
            token: if not given, HEADWAY_TOKEN in the environment, else none.
            timeout: how long one try of a call may take, as "30s" or a timedelta.
            patience: for how long a call is repeated while the server is away, or asks for it.
            timing: the simulator's.

        Raises:
            InvalidValue: the URL is none of a server, or another value is unusable.
        """
        address = read_address(url, token)
        self._url = address.url
        self.patience_s = parse_duration(patience) / 1000
        self.remote = RemoteStore(
            address,
            timeout_s=parse_duration(timeout) / 1000,
            patience_s=self.patience_s,
            timing=timing,
        )
        self._background = Background()

    def __repr__(self) -> str:
        """Return where the server is; never the token."""
        return f"<Client {self._url}>"

    @property
    def store(self) -> Store:
        """The server as a store: what workers, and `App(store=...)`, speak to."""
        return self.remote

    def close(self) -> None:
        """Close all connections; a later call opens them again."""
        self.wait_for(self.close_async())
        self._background.close()

    async def close_async(self) -> None:
        """As `close`, for callers that can await."""
        await self.remote.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `close_async`."""
        await self.close_async()

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine for a caller that cannot await."""
        return self._background.run(work)

    # ------------------------------------------------------------------------------- producers

    async def send_async(
        self,
        kind: Kind | str,
        /,
        *,
        also: Mapping[str, object] | None = None,
        **given: Any,  # noqa: ANN401  (checked by the kind, or by the server)
    ) -> Sent:
        """Make a job; when this returns, it is stored.

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
            OutcomeUnknown: no answer came; the same call with the same `job_id` or `key` returns
                it.
            InvalidValue: `also` was given for a kind that is declared.
        """
        if isinstance(kind, Kind):
            if also:
                message = f"the kind {kind.name!r} says the rest itself"
                raise InvalidValue(message, hint="leave `also` out, or give the kind's name")
            return await self._send_of(kind, kind.make(**given))
        reply = await self.remote.post("/v1/jobs", plain_body(kind, given, also or {}))
        return Sent(reply["id"], reply["created"])

    send = _waiting(send_async)

    async def send_many_async(self, jobs: Iterable[NewJob | Mapping[str, object]]) -> list[Sent]:
        """Make many jobs, in steps of 1000; each step is stored whole or not at all.

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
        now = self.remote.wall_at()
        bodies = (
            job_body(one, now) if isinstance(one, NewJob) else body_with_id(one) for one in jobs
        )
        return await send_in_steps(bodies, self._send_step)

    send_many = _waiting(send_many_async)

    async def signal_async(
        self, key: str, *, event: str, **options: Unpack[SignalOptions]
    ) -> SignalReply:
        """Report what the outside world says about a job that awaits it.

        Args:
            key: the job's reference, or a key that it is known as.
            event: the event's id; each is applied once.
            options: see `SignalOptions`.

        Returns:
            The reply of the store.

        Raises:
            CallerError: the signal says nothing or too much.
            StoreError: the server cannot do it now.
        """
        return await self.remote.signal(read_signal(key, event, options))

    signal = _waiting(signal_async)

    async def _send_step(self, step: list[Fields]) -> list[Sent]:
        reply = await self.remote.post("/v1/jobs", step)
        return [Sent(one["id"], one["created"]) for one in reply["jobs"]]

    async def _send_of(self, kind: Kind, job: NewJob) -> Sent:
        try:
            return (await self.remote.enqueue([job]))[0]
        except UnknownGate:
            # As an App declares its gates when it first sends.
            items = tuple(DeclareGate(spec=spec) for spec in kind.gates)
            await self.remote.define(DefineRequest(items=items, author=kind.name))
            return (await self.remote.enqueue([job]))[0]

    # ------------------------------------------------------------------------------------ jobs

    async def job_async(self, job: str) -> JobView | None:
        """Return a job and its whole record; None if no job has this id."""
        return await self.remote.read(JobQuery(id=job))

    job = _waiting(job_async)

    async def jobs_async(self, **asked: Unpack[JobsAsked]) -> Page[JobView]:
        """Return a page of jobs, oldest arrival first.

        Args:
            asked: see `JobsAsked`.

        Returns:
            Up to `limit` jobs, and the cursor of the next page.
        """
        refuse_unknown(asked, JobsAsked, "jobs are not asked for by", "by")
        return await self.remote.read(JobsQuery(**asked))

    jobs = _waiting(jobs_async)

    async def why_async(self, job: str) -> WhyView | None:
        """Return why a job is where it is; None if no job has this id."""
        return await self.remote.read(WhyQuery(id=job))

    why = _waiting(why_async)

    async def read_async(self, query: Query[Answer]) -> Answer:
        """Answer one of the contract's questions, such as `LanesQuery()`.

        Raises:
            CallerError: the HTTP API does not answer it.
        """
        return await self.remote.read(query)

    read = _waiting(read_async)

    async def cancel_async(self, job: str, *, reason: str = "") -> str | None:
        """Cancel a queued job, and ask one that runs or awaits to end.

        Args:
            job: its id.
            reason: for the trail.

        Returns:
            Its state now.

        Raises:
            UnknownJob: there is none.
            InvalidState: it is final.
        """
        return await self._move(Verb.CANCEL, job, reason, Edit())

    cancel = _waiting(cancel_async)

    async def retry_async(
        self, job: str, *, reason: str = "", args: Mapping[str, object] | None = None
    ) -> str | None:
        """Give a dead or cancelled job a new life.

        Args:
            job: its id.
            reason: for the trail.
            args: new arguments, in place of all the old.

        Returns:
            Its state now.

        Raises:
            UnknownJob: there is none.
            InvalidState: it is neither dead nor cancelled.
        """
        edit = Edit() if args is None else Edit(args=encode("arguments", args))
        return await self._move(Verb.RETRY, job, reason, edit)

    retry = _waiting(retry_async)

    async def _move(self, verb: Verb, job: str, reason: str, edit: Edit) -> str | None:
        request = ActRequest(
            request=uuid4().hex, ids=(job,), verb=verb, edit=edit, author="client", reason=reason
        )
        return moved(verb, (await self.remote.act(request))[0])

    # ------------------------------------------------------------------------------------ work

    def worker(self, app: App, **options: Unpack[WorkerOptions]) -> Worker:
        """Make a worker for an App's kinds that claims from the server.

        From now on all that the App sends goes to the server too. The server does the chores.

        Args:
            app: whose handlers run here.
            options: see `WorkerOptions`; it serves all lanes of the app if none are given.

        Returns:
            The worker; `await worker.run()` works until `worker.stop()`.

        Raises:
            InvalidValue: the app has another store open.
        """
        app.use(self.remote)
        here: WorkerOptions = {"chores": False, "signal_url": self.remote.signal_url}
        return app.worker(**{**here, **options})

    def run(self, app: App, **options: Unpack[WorkerOptions]) -> None:
        """Work until SIGTERM or Ctrl-C; a second one does not wait for handlers.

        A third one ends the process at once, whatever still runs in it.

        Args:
            app: whose handlers run here.
            options: as for `worker`.
        """
        event_loop.run(self._work(app, options))

    async def _work(self, app: App, options: WorkerOptions) -> None:
        worker = self.worker(app, **options)
        try:
            event_loop.on_signals(lambda now: worker.stop(now=now))
            await worker.run()
        finally:
            await self.close_async()

    async def claim_async(self, worker: str, **asked: Unpack[ClaimAsked]) -> ClaimReply:
        """Claim jobs, and wait for some if there are none.

        A program that claims by hand also beats and settles by hand.

        Args:
            worker: a random name, new at each start of the program.
            asked: see `ClaimAsked`.

        Returns:
            The jobs, in the order to be started; none if the time is up.
        """
        return read_claim((await self.remote.ask(claim_call(worker, asked))).body).reply()

    claim = _waiting(claim_async)

    async def settle_async(self, worker: str, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """Report the outcomes of runs that this worker holds.

        Args:
            worker: as for `claim`.
            outcomes: up to 1000.

        Returns:
            A verdict for each; LOST for a run that is not live any more.
        """
        call = settle_call(worker, outcomes, self.remote.wall_at(), self.patience_s)
        return [Verdict(word) for word in (await self.remote.ask(call)).json["verdicts"]]

    settle = _waiting(settle_async)

    async def beat_async(
        self, worker: str, running: Sequence[tuple[str, int]], *, lease: object = "30s"
    ) -> BeatReply:
        """Keep the leases of what a worker runs.

        Args:
            worker: as for `claim`.
            running: each run that it holds, as (job, run).
            lease: how long its runs live from now.

        Returns:
            Which of them are lost, and which are to be cancelled.
        """
        return await self.remote.beat(
            BeatRequest(worker=worker, running=tuple(running), lease_ms=parse_duration(lease))
        )

    beat = _waiting(beat_async)
