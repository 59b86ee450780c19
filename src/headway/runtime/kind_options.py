"""The options of a kind, and the gates that its jobs need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, cast

from headway.core.duration import Duration, check_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateNeed, GateSpec, GateUse, check_count
from headway.core.job import (
    DAY_MS,
    DEFAULT_POLICY,
    DEFAULT_PRIORITY,
    MAX_PRIORITY,
    MAX_SHARED_GATES,
    ON_DEADLINE,
)
from headway.core.local_time import find_zone
from headway.core.naming import (
    ALWAYS_KNOWN,
    check_flag,
    check_name,
    did_you_mean,
    placeholders,
    resolve,
)
from headway.core.retry import RetryPolicy
from headway.core.state import FINAL, State

Gates = Sequence[GateSpec | GateNeed]


class Named(Protocol):
    """A kind, of which only the name is needed."""

    @property
    def name(self) -> str:
        """The kind's name."""
        ...


class JobOptions(TypedDict, total=False):
    """Options of `@app.job`.

    Attributes:
        name: name of the kind; defaults to the function's name.
        lane: lane in which its jobs wait.
        gates: gates that each job must pass, in this order; each is a gate, or the result of its
            `take`.
        stages: stages by name, each with its gates, in place of `gates`; jobs start in the first
            one.
        priority: 0 to 4294967295; lower numbers start first.
        retry: a `Backoff`.
        timeout: how long a handler may run; unlimited by default.
        start_within: how long a claimed job with gates may wait for a handler before it is
            returned.
        expires: a job that has not started this long after its due time becomes dead; it does not
            apply to retries.
        subject: template over arguments: what a job is about.
        tenant: template over arguments: the customer a job belongs to.
        key: template over arguments: deduplication key; sending the same key again creates no job.
        on_deadline: state after a hand-over that gets no signal in time: "dead" or "retry".
        reconcile: function that queries the provider about a job that has been awaiting too long.
        reconcile_within: time limit for that query, after which the deadline decides.
        on_final: kind of a job that is created in the same step in which a job becomes final; it
            has the lane, retries, timeout, retention and `on_final` of its kind.
        on_final_states: final states that trigger `on_final`; only "dead" by default.
        keep: how long a final job is kept.
        key_for: how long its key stays taken after the job is final.
        cascade: whether a job is offered to its candidates one after another.
        on_accepted: of a cascade: kind of a job that is created when a candidate accepts, like that
            of `on_final`; the accepted job keeps awaiting its end and keeps the permits of that
            turn.
        processes: whether the handler runs in a separate process.
    """

    name: str
    lane: str
    gates: Gates
    stages: Mapping[str, Gates]
    priority: int
    retry: RetryPolicy
    timeout: Duration | None
    start_within: Duration
    expires: Duration | None
    subject: str
    tenant: str
    key: str
    on_deadline: Literal["dead", "retry"]
    reconcile: Callable[..., Any]
    reconcile_within: Duration
    on_final: Named | str
    on_final_states: Sequence[str]
    keep: Duration
    key_for: Duration
    cascade: bool
    on_accepted: Named | str
    processes: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class KindOptions:
    """`JobOptions`, validated and with defaults; durations in milliseconds.

    Templates are checked by `Kind`, which knows the handler's arguments.
    """

    name: str
    lane: str = "main"
    stages: tuple[tuple[str, Gates], ...] = (("", ()),)
    priority: int = DEFAULT_PRIORITY
    retry: RetryPolicy = DEFAULT_POLICY.retry
    timeout_ms: int | None = None
    start_within_ms: int = 1_000
    expires_ms: int | None = None
    subject: str | None = None
    tenant: str = ""
    key: str | None = None
    on_deadline: Literal["dead", "retry"] = "dead"
    reconcile_within_ms: int = 300_000
    on_final: str | None = None
    on_final_states: tuple[State, ...] = (State.DEAD,)
    keep_ms: int = 7 * DAY_MS
    key_for_ms: int = 7 * DAY_MS
    cascade: bool = False
    on_accepted: str | None = None
    processes: bool = False


def read_options(name: str, options: JobOptions) -> KindOptions:
    """Validate the options of `@app.job`.

    Args:
        name: name of the function, the default for the kind's.

    Raises:
        InvalidValue: an option is unknown or not valid.
    """
    kind = check_name("kind", options.get("name", name))
    refuse_unknown(options, JobOptions, f"the kind {kind!r} has an unknown option", "options are")
    on_deadline = options.get("on_deadline", "dead")
    if on_deadline not in ON_DEADLINE:
        message = f"on_deadline of {kind!r} is {on_deadline!r}"
        raise InvalidValue(message, hint='use "dead" or "retry"')
    timeout, expires = options.get("timeout"), options.get("expires")
    return KindOptions(
        name=kind,
        lane=check_name("lane", options.get("lane", "main")),
        stages=_stages(kind, options),
        priority=check_priority(options.get("priority", DEFAULT_PRIORITY)),
        retry=_retry(kind, options.get("retry", DEFAULT_POLICY.retry)),
        timeout_ms=(
            None if timeout is None else check_duration(f"timeout of {kind!r}", timeout, least=1)
        ),
        start_within_ms=check_duration(
            f"start_within of {kind!r}", options.get("start_within", "1s"), least=1
        ),
        expires_ms=None if expires is None else check_duration(f"expires of {kind!r}", expires),
        subject=options.get("subject"),
        tenant=options.get("tenant", ""),
        key=options.get("key"),
        on_deadline=on_deadline,
        reconcile_within_ms=check_duration(
            f"reconcile_within of {kind!r}", options.get("reconcile_within", "5m")
        ),
        on_final=_name(f"on_final of {kind!r}", options.get("on_final")),
        on_final_states=_states(kind, options.get("on_final_states", ("dead",))),
        keep_ms=check_duration(f"keep of {kind!r}", options.get("keep", "7d")),
        key_for_ms=check_duration(f"key_for of {kind!r}", options.get("key_for", "7d")),
        cascade=check_flag(f"cascade of {kind!r}", options.get("cascade", False)),
        on_accepted=_on_accepted(kind, options),
        processes=check_flag(f"processes of {kind!r}", options.get("processes", False)),
    )


def refuse_unknown(
    given: Mapping[str, object], known: type, start: str, hint: str = "it has"
) -> None:
    """Refuse unknown options.

    Args:
        known: TypedDict of the options.
        start: start of the error message, which continues with the unknown name.
        hint: start of the hint, which continues with the known names.

    Raises:
        InvalidValue: an option is unknown.
    """
    unknown = sorted(given.keys() - known.__annotations__.keys())
    if unknown:
        message = f"{start} {unknown[0]!r}"
        options = known.__annotations__
        meant = did_you_mean(unknown[0], options)
        raise InvalidValue(message, hint=f"{meant} {hint} {', '.join(options)}".lstrip())


def check_priority(priority: object) -> int:
    """Validate a priority, and return it.

    Raises:
        InvalidValue: it is not a whole number from 0 to 4294967295.
    """
    if isinstance(priority, bool) or not isinstance(priority, int):
        message = f"priority must be a whole number, not {priority!r:.80}"
        raise InvalidValue(message)
    if not 0 <= priority <= MAX_PRIORITY:
        message = f"priority is {priority}"
        raise InvalidValue(message, hint=f"it must be from 0 (first) to {MAX_PRIORITY}")
    return priority


def check_template(what: str, kind: str, template: object, names: Sequence[str]) -> None:
    """Check that the placeholders of a template are arguments of the kind.

    Args:
        what: name of the option.

    Raises:
        InvalidValue: a placeholder is not an argument, or the template is not text.
    """
    if template is None:
        return
    if not isinstance(template, str):
        message = f"the {what} of {kind!r} must be text, not {template!r:.80}"
        raise InvalidValue(message)
    for field in placeholders(template):
        if field not in names and field not in ALWAYS_KNOWN:
            message = (
                f"the {what} {template!r} needs an argument {field!r}, which {kind!r} does not have"
            )
            raise InvalidValue(message, hint=f"add the parameter, or correct the {what}")


def _stages(kind: str, options: JobOptions) -> tuple[tuple[str, Gates], ...]:
    stages = options.get("stages")
    if stages is None:
        return (("", _listed(kind, options.get("gates", ()))),)
    if options.get("gates"):
        message = f"the kind {kind!r} has gates in addition to its stages"
        raise InvalidValue(message, hint="name each stage's gates in `stages`")
    if not stages:
        message = f"the kind {kind!r} has no stages"
        raise InvalidValue(message, hint="name at least one, or omit `stages`")
    if not isinstance(cast("object", stages), Mapping):
        message = f"the stages of {kind!r} are {stages!r:.80}"
        raise InvalidValue(
            message, hint='pass their gates by name, such as {"check": [], "dial": [LINE]}'
        )
    return tuple(
        (check_name("stage", name), _listed(kind, gates)) for name, gates in stages.items()
    )


def _listed(kind: str, gates: object) -> Gates:
    if not isinstance(gates, Sequence) or isinstance(gates, str):
        message = f"the gates of {kind!r} are {gates!r:.80}"
        raise InvalidValue(message, hint="pass a list of gates")
    return tuple(cast("Sequence[Any]", gates))


def _name(what: str, kind: Named | str | None) -> str | None:
    if kind is None:
        return None
    return check_name(what, getattr(kind, "name", kind))


def _on_accepted(kind: str, options: JobOptions) -> str | None:
    name = _name(f"on_accepted of {kind!r}", options.get("on_accepted"))
    if name is not None and not options.get("cascade", False):
        message = f"the kind {kind!r} has on_accepted, but is not a cascade"
        raise InvalidValue(message, hint="declare it with cascade=True")
    return name


def _retry(kind: str, retry: object) -> RetryPolicy:
    if not isinstance(retry, RetryPolicy):
        message = f"retry of {kind!r} is {retry!r:.80}"
        raise InvalidValue(message, hint="pass a Backoff(...)")
    return retry


def _states(kind: str, states: Sequence[str]) -> tuple[State, ...]:
    listed = isinstance(cast("object", states), Iterable) and not isinstance(states, str)
    if not listed or any(state not in tuple(FINAL) for state in states):
        message = f"on_final_states of {kind!r} is {states!r:.80}"
        raise InvalidValue(message, hint=f"use some of {', '.join(sorted(FINAL))}")
    return tuple(map(State, states))


CANDIDATE = frozenset({"candidate"})


class Needs:
    """The gates that jobs must pass at one stage.

    Attributes:
        needs: each gate with its amount, in the order declared.
        fixed: the resolved gates, if they are the same for all jobs; otherwise None.
    """

    def __init__(
        self,
        kind: str,
        gates: Sequence[GateSpec | GateNeed],
        names: Sequence[str],
        *,
        cascade: bool,
    ) -> None:
        self.kind = kind
        self.needs = tuple(_need(kind, gate) for gate in gates)
        self._keep = CANDIDATE if cascade else frozenset[str]()
        known = ALWAYS_KNOWN.union(names, self._keep)
        for need in self.needs:
            _refuse_unknown_argument(kind, need, known)
        if sum(need.spec.shared for need in self.needs) > MAX_SHARED_GATES:
            message = f"the kind {kind!r} needs more than {MAX_SHARED_GATES} shared gates"
            raise InvalidValue(message, hint="let one gate stand for several")
        self.fixed = self._always_the_same()

    @property
    def specs(self) -> tuple[GateSpec, ...]:
        """The declarations of the gates."""
        return tuple(need.spec for need in self.needs)

    def uses(self, values: Mapping[str, object]) -> tuple[GateUse, ...]:
        """Return the gates that a job with these values must pass.

        Returns:
            The gates with their names resolved, in the order declared.

        Raises:
            InvalidValue: a name cannot be resolved, a time zone is unknown, an amount is not valid,
                or two gates resolve to the same name.
        """
        uses = tuple(self._use(need, values) for need in self.needs)
        if len({use.name for use in uses}) != len(uses):
            names = [use.name for use in uses]
            twice = next(name for name in names if names.count(name) > 1)
            message = f"{self.kind}: two of its gates are the same gate {twice!r}"
            raise InvalidValue(message, hint="name it once, with the sum as amount")
        return uses

    def _always_the_same(self) -> tuple[GateUse, ...] | None:
        for need in self.needs:
            zone = need.spec.hours.tz if need.spec.hours else ""
            if placeholders(need.spec.name) or placeholders(zone) or need.argument:
                return None
        names = [need.spec.name for need in self.needs]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            message = f"the kind {self.kind!r} names the gate {twice!r} twice"
            raise InvalidValue(message, hint="name it once, with the sum as amount")
        return tuple(self._use(need, {}) for need in self.needs)

    def _use(self, need: GateNeed, values: Mapping[str, object]) -> GateUse:
        spec, amount = need.spec, need.amount
        if need.argument is not None:
            what = f"{self.kind}: the argument {need.argument!r}, an amount of {spec.name!r},"
            amount = check_count(what, values.get(need.argument), least=1)
        zone = None
        if spec.hours is not None:
            zone = resolve(spec.hours.tz, values, what="time zone")
            find_zone(zone)
        return GateUse(
            name=resolve(spec.name, values, keep=self._keep),
            template=spec.name,
            amount=amount,
            hold=need.hold,
            shared=spec.shared,
            zone=zone,
        )


def _need(kind: str, gate: object) -> GateNeed:
    if isinstance(gate, GateSpec):
        return gate.take()
    if isinstance(gate, GateNeed):
        return gate
    message = f"among the gates of {kind!r} is {gate!r:.80}"
    raise InvalidValue(message, hint="use Slots, Rate, Hours, Pool, or what their take() returns")


def _refuse_unknown_argument(kind: str, need: GateNeed, known: frozenset[str]) -> None:
    spec = need.spec
    zone = spec.hours.tz if spec.hours else ""
    amount = (need.argument,) if need.argument else ()
    for field in (*placeholders(spec.name), *placeholders(zone), *amount):
        if field not in known:
            message = (
                f"the gate {spec.name!r} needs an argument {field!r}, which {kind!r} does not have"
            )
            raise InvalidValue(message, hint="add the parameter, or correct the gate")


class KnownValues:
    """The values that templates may use: a job's arguments, kind, lane and tenant."""

    __slots__ = ("kind", "lane", "tenant", "values")

    def __init__(self, kind: str, lane: str, values: Mapping[str, object]) -> None:
        self.kind = kind
        self.lane = lane
        self.tenant = ""
        self.values = values

    def all(self) -> Mapping[str, object]:
        """Return all values by name: the arguments, `tenant`, `lane` and `kind`."""
        return {**self.values, "tenant": self.tenant, "lane": self.lane, "kind": self.kind}

    def named(
        self, options: KindOptions, tenant: str | None, subject: str | None, key: str | None
    ) -> tuple[str, str | None, str | None]:
        """Return tenant, subject and key of a job: those that were passed, or else by template."""
        self.tenant = self._name("tenant", options.tenant, tenant, empty=True) or ""
        return (
            self.tenant,
            self._name("subject", options.subject, subject),
            self._name("key", options.key, key),
        )

    def _name(
        self, what: str, template: str | None, given: str | None, *, empty: bool = False
    ) -> str | None:
        """Return the name that was passed, or else the template filled in."""
        if given is not None:
            return check_name(what, given, empty=empty)
        if template is None or not placeholders(template):
            return template
        return resolve(template, self.all(), what=what)
