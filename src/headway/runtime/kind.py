"""Kinds: the declaration of one sort of work, which creates its jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

from typing_extensions import ParamSpec
from typing_extensions import TypeVar as DefaultTypeVar
from uuid_utils import uuid7

from headway.core.duration import Duration, parse_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.instant import Instant, parse_instant, parse_moment
from headway.core.job import DEFAULT_POLICY, MOST_CHAINED, FollowUp, JobPolicy, NewJob
from headway.core.naming import check_name, placeholders
from headway.core.state import State
from headway.runtime.handler import Handler
from headway.runtime.kind_options import (
    Gates,
    KindOptions,
    KnownValues,
    Needs,
    check_priority,
    check_template,
)
from headway.runtime.timing import Timing

Function = TypeVar("Function", bound=Callable[..., Any])
# With defaults, so that an annotation can be `Kind` alone.
HandlerParameters = ParamSpec("HandlerParameters", default=...)
HandlerValue = DefaultTypeVar("HandlerValue", default=Any)


NOOP = "noop"
"""The built-in kind, whose jobs do nothing."""


class Kind(Generic[HandlerParameters, HandlerValue]):
    """One sort of work: its handlers, its gates, its policy. Calling it calls its first handler.

    Attributes:
        name: unique in its app.
        options: options that apply to all its jobs.
        handlers: the handler of each stage; the only stage is "" in a kind without stages.
        asks: the reconcile handler, if the kind is that of reconcile jobs.
    """

    def __init__(
        self,
        options: KindOptions,
        fn: Callable[HandlerParameters, HandlerValue],
        *,
        asks: Callable[..., Any] | None = None,
        reconciler: Callable[[Kind, Callable[..., Any]], str] | None = None,
        kinds: Callable[[str], Kind | None] = lambda _: None,
        timing: Timing | None = None,
    ) -> None:
        """Create a kind.

        Args:
            fn: handler of the first stage.
            asks: the reconcile handler, if the kind is that of reconcile jobs.
            reconciler: declares the kind of the reconcile jobs for this one, and returns its name.
            kinds: returns a kind by name, or None if it is unknown.
            timing: clock for due times and expiry.

        Raises:
            InvalidValue: a handler, a gate or a template is not valid.
        """
        self.name = options.name
        self.options = options
        self.asks = asks
        self._reconciler = reconciler
        self._reconciled_by: str | None = None
        self._fn = fn
        self._kinds = kinds
        self._timing = timing or Timing()
        self._first = options.stages[0][0]
        handler = Handler(self.name, fn, processes=options.processes)
        self.handlers: dict[str, Handler] = {self._first: handler}
        self._arguments = handler.arguments
        names = self._arguments.names
        self._needs = {
            stage: Needs(self.name, gates, names, cascade=options.cascade)
            for stage, gates in options.stages
        }
        for what in ("tenant", "subject", "key"):
            check_template(what, self.name, getattr(options, what), names)
        named = (options.tenant or "", options.subject, options.key)
        # Tenant, subject and key of jobs sent without their own; None if they depend on arguments.
        self._fixed = None if any(map(placeholders, filter(None, named))) else named
        self._policy: JobPolicy | None = None

    def __call__(
        self, *args: HandlerParameters.args, **kwargs: HandlerParameters.kwargs
    ) -> HandlerValue:
        """Call the first handler as a plain function, for its own tests."""
        return self._fn(*args, **kwargs)

    def __repr__(self) -> str:
        """Return the kind's class and name."""
        return f"<Kind {self.name!r}>"

    @property
    def lane(self) -> str:
        """Lane of its jobs, unless they are sent to another one."""
        return self.options.lane

    @property
    def gates(self) -> tuple[GateSpec, ...]:
        """All gates it uses, in the order of its stages; may contain duplicates."""
        return tuple(spec for needs in self._needs.values() for spec in needs.specs)

    @property
    def policy(self) -> JobPolicy:
        """The part of its options that is stored with each job."""
        if self._policy is None:
            self._policy = self._read_policy(())
        return self._policy

    def policy_after(self, before: tuple[str, ...]) -> JobPolicy | None:
        """Return the policy of its jobs as follow-ups, without a cascade: they have no candidates.

        Args:
            before: the kinds of the jobs that they follow, the first one first.

        Returns:
            None for the default policy, which they also get if this kind is among those before, or
            if these are more than a chain may have.
        """
        if self.name in before or len(before) > MOST_CHAINED:
            return None
        policy = replace(self._read_policy(before), cascade=False, on_accepted=None)
        return None if policy == DEFAULT_POLICY else policy

    def stage(self, name: str) -> Callable[[Function], Function]:
        """Declare the handler of a further stage.

        Returns:
            A decorator that leaves the function unchanged. The function takes some or all of the
            first handler's arguments.

        Raises:
            InvalidValue: there is no such stage, it has a handler already, or the function requires
                an argument that the first handler does not take.
        """
        if name not in self._needs:
            message = f"the kind {self.name!r} has no stage {name!r}"
            raise InvalidValue(message, hint=self._stages_hint())
        if name in self.handlers:
            message = f"the stage {name!r} of {self.name!r} has a handler already"
            raise InvalidValue(message, hint="each stage has one")

        def add(fn: Function) -> Function:
            handler = Handler(self.name, fn, processes=self.options.processes, strict=False)
            more = sorted(handler.arguments.required.difference(self._arguments.names))
            if more:
                message = f"the stage {name!r} of {self.name!r} needs an argument {more[0]!r}"
                raise InvalidValue(message, hint="the first stage's handler must take it too")
            self.handlers[name] = handler
            return fn

        return add

    def check_stages(self) -> None:
        """Check that each stage has a handler.

        Raises:
            InvalidValue: a stage has none.
        """
        for name in self._needs:
            if name not in self.handlers:
                message = f"the stage {name!r} of {self.name!r} has no handler"
                raise InvalidValue(message, hint=f"decorate one with @{self.name}.stage({name!r})")

    def reconcile(self, ask: Function) -> Function:
        """Register the function that queries the provider about an awaiting job.

        Args:
            ask: takes an `Awaited`; returns `Running`, `Ended` or `Unknown`.

        Raises:
            InvalidValue: the kind already has one or belongs to no app, or this is not a function.
        """
        if self._reconciler is None:
            message = f"the kind {self.name!r} belongs to no app"
            raise InvalidValue(message, hint="declare it with @app.job")
        if self._reconciled_by is not None:
            message = f"the kind {self.name!r} already has a reconcile handler"
            raise InvalidValue(message, hint="a kind has one reconcile handler")
        self._reconciled_by = self._reconciler(self, ask)
        self._policy = None
        return ask

    def make(  # noqa: PLR0913  (the options of a send, all by name)
        self,
        /,
        *,
        due: Instant | timedelta | None = None,
        priority: int | None = None,
        lane: str | None = None,
        tenant: str | None = None,
        subject: str | None = None,
        key: str | None = None,
        expires: Duration | None = None,
        job_id: str | None = None,
        candidates: Sequence[str] | None = None,
        **arguments: object,
    ) -> NewJob:
        """Create a job to send, or to follow another job.

        Args:
            due: when it is due: an aware datetime, ISO 8601 with an offset, or a duration from now
                as "20m" or a timedelta; defaults to now.
            priority: lower numbers start first.
            lane: lane in which it waits.
            tenant: customer it belongs to.
            subject: what it is about.
            key: deduplication key, unique within the tenant.
            expires: how long after its due time it may still start, as "1h" or a timedelta.
            job_id: a UUID; a new one by default.
            candidates: of a cascade: candidates in the order to try them.
            arguments: arguments of the handler.

        Returns:
            The job, which is not stored yet.

        Raises:
            InvalidArguments: the arguments do not match the handler's annotations.
            PayloadTooLarge: the arguments exceed the size limit.
            InvalidValue: an option is not valid, or a gate's name cannot be resolved.
        """
        options, needs = self.options, self._needs[self._first]
        unnamed = tenant is None and subject is None and key is None
        named, gates = self._fixed if unnamed else None, needs.fixed
        args, values = self._arguments.check(arguments, values=named is None or gates is None)
        where = options.lane if lane is None else check_name("lane", lane)
        if named is None or gates is None:
            known = KnownValues(self.name, where, values)
            if named is None:
                named = known.named(options, tenant, subject, key)
            known.tenant = named[0]
            if gates is None:
                gates = needs.uses(known.all())
        due_at = None if due is None else self._due_at(due)
        if candidates is not None or options.cascade:
            self._check_candidates(candidates)
        return NewJob(
            id=str(uuid7()) if job_id is None else str(job_id),
            kind=self.name,
            lane=where,
            tenant=named[0],
            subject=named[1],
            stage=self._first,
            args=args,
            priority=options.priority if priority is None else check_priority(priority),
            due_at=due_at,
            expires_at=self._expires_at(due_at, expires),
            key=named[2],
            gates=gates,
            policy=self.policy,
            candidates=() if candidates is None else tuple(candidates),
        )

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Validate arguments as `make` does.

        Raises:
            InvalidArguments: the arguments do not match the handler's annotations.
            PayloadTooLarge: the arguments exceed the size limit.
        """
        self._arguments.check(dict(arguments))

    def _stages_hint(self) -> str:
        named = ", ".join(filter(None, self._needs))
        return f"it has {named}" if named else "it has no stages: @app.job(stages=...)"

    def uses(
        self,
        stage: str,
        lane: str,
        tenant: str,
        args: bytes,
        gates: Gates | None = None,
    ) -> tuple[GateUse, ...]:
        """Return the gates that a stored job must pass at one of the kind's stages.

        Args:
            gates: gates in place of those declared for the stage; None for the declared ones.

        Returns:
            The gates with their names resolved, in the order declared.

        Raises:
            InvalidArguments: the handler's annotations refuse the stored arguments.
            InvalidValue: there is no such stage, a gate is not valid, or its name cannot be
                resolved.
        """
        if stage not in self._needs:
            message = f"the kind {self.name!r} has no stage {stage!r}"
            raise InvalidValue(message, hint=self._stages_hint())
        needs = self._needs[stage]
        if gates is not None:
            names = self._arguments.names
            needs = Needs(self.name, gates, names, cascade=self.options.cascade)
        if needs.fixed is not None:
            return needs.fixed
        known = KnownValues(self.name, lane, self._arguments.values(args))
        known.tenant = tenant
        return needs.uses(known.all())

    def takes(self, names: Sequence[str]) -> bool:
        """Return whether its first handler can be called with exactly these arguments."""
        arguments = self._arguments
        return arguments.open or (
            arguments.required.issubset(names) and set(names).issubset(arguments.names)
        )

    def _check_candidates(self, candidates: Sequence[str] | None) -> None:
        if isinstance(candidates, str) or not isinstance(
            cast("object", candidates), Sequence | None
        ):
            message = f"{self.name}: candidates is {candidates!r:.80}"
            raise InvalidValue(message, hint="pass a list of names, in the order to try them")
        if (candidates is not None) == self.options.cascade:
            return
        if self.options.cascade:
            message = f"{self.name}: a cascade needs candidates"
            raise InvalidValue(message, hint="pass candidates=[...], in the order to try them")
        message = f"{self.name}: candidates were given, but the kind is not a cascade"
        raise InvalidValue(message, hint="declare it with cascade=True")

    def _due_at(self, due: Instant | timedelta | None) -> int:
        if isinstance(due, str):
            return parse_moment("", due).resolved(self._timing.wall_at())
        if isinstance(due, timedelta):
            return self._timing.wall_at() + parse_duration(due)
        return parse_instant(due)

    def _expires_at(self, due_at: int | None, expires: Duration | None) -> int | None:
        span_ms = self.options.expires_ms if expires is None else parse_duration(expires)
        if span_ms is None:
            return None
        return (self._timing.wall_at() if due_at is None else due_at) + span_ms

    def _read_policy(self, before: tuple[str, ...]) -> JobPolicy:
        options, before = self.options, (*before, self.name)
        policy = JobPolicy(
            retry=options.retry,
            timeout_ms=options.timeout_ms,
            start_within_ms=options.start_within_ms,
            on_deadline=options.on_deadline,
            reconcile=self._reconciled_by,
            reconcile_within_ms=options.reconcile_within_ms,
            on_final=self._follow_up(options.on_final, before, options.on_final_states),
            keep_ms=options.keep_ms,
            key_for_ms=options.key_for_ms,
            cascade=options.cascade,
            on_accepted=self._follow_up(options.on_accepted, before, ()),
        )
        # The same object, so that stores can recognise the default policy by identity.
        return DEFAULT_POLICY if policy == DEFAULT_POLICY else policy

    def _follow_up(
        self, name: str | None, before: tuple[str, ...], states: tuple[State, ...]
    ) -> FollowUp | None:
        if name is None:
            return None
        kind = self._kinds(name)
        if kind is None:
            return FollowUp(kind=name, states=states)
        policy = kind.policy_after(before)
        return FollowUp(kind=name, lane=kind.lane, states=states, policy=policy)
