"""A factory of jobs whose fields all have different values.

This exposes a store that mixes up two fields, or compares the wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypedDict, Unpack

from headway.core.gates.spec import GateNeed, GateSpec, GateUse, Hold
from headway.core.job import JobPolicy, NewJob, derived_id
from headway.core.naming import resolve
from headway.core.retry import RetryPolicy
from headway.testing.clock import FakeClock

HOUR_MS = 3_600_000

POLICY = JobPolicy(
    retry=RetryPolicy(attempts=3, base_ms=2_000, factor=3.0, cap_ms=90_000, jitter="none"),
    timeout_ms=61_000,
    start_within_ms=1_300,
    reconcile_within_ms=305_000,
    keep_ms=50 * HOUR_MS,
    key_for_ms=20 * HOUR_MS,
)
"""A policy whose numbers all differ from the defaults."""


class Keyed(NamedTuple):
    """A use of a gate with placeholders in its name, together with its declaration."""

    spec: GateSpec
    use: GateUse

    @property
    def name(self) -> str:
        """The resolved name of the gate."""
        return self.use.name


Gate = GateSpec | GateNeed | GateUse | Keyed
"""A gate that a test job needs: a declared gate without placeholders in its name, or a use."""


class JobFields(TypedDict, total=False):
    """The fields of NewJob that a test may set."""

    id: str
    kind: str
    lane: str
    tenant: str
    subject: str | None
    stage: str
    args: bytes
    priority: int
    due_at: int | None
    expires_at: int | None
    key: str | None
    gates: tuple[Gate, ...]
    policy: JobPolicy
    candidates: tuple[str, ...]
    entry: str | None
    fired_at: int | None


class JobFactory:
    """Creates jobs with ids that are the same in each test run.

    Args:
        clock: clock for the default due times.
        seed: factories with different seeds share no ids.
    """

    def __init__(self, clock: FakeClock, seed: str = "jobs") -> None:
        self._clock = clock
        self._seed = seed
        self._made = 0

    def make(self, **fields: Unpack[JobFields]) -> NewJob:
        """Create a job that was due a little before now; `fields` override the defaults.

        No other job of this factory has the same id, key, arguments or due time.
        """
        self._made += 1
        number = self._made
        job = NewJob(
            id=derived_id(self._seed, number),
            kind="dial",
            lane="calls",
            tenant="acme",
            subject=f"+1555{number:07}",
            args=b'{"number":%d}' % number,
            priority=300,
            due_at=self._clock() - 1_000_000 + number,
            expires_at=self._clock() + 1_000 * HOUR_MS + number,
            key=f"lead-{number}",
            policy=POLICY,
        )
        if "gates" in fields:
            fields["gates"] = tuple(_use(gate) for gate in fields["gates"])
        return job.changed(**fields)

    def many(self, count: int, **fields: Unpack[JobFields]) -> list[NewJob]:
        """Create several jobs, each due a millisecond after the previous one."""
        return [self.make(**fields) for _ in range(count)]


def _use(gate: Gate) -> GateUse:
    if isinstance(gate, Keyed):
        return gate.use
    if isinstance(gate, GateNeed):
        return use_of(gate.spec, gate.amount, hold=gate.hold)
    return use_of(gate) if isinstance(gate, GateSpec) else gate


def use_of(
    spec: GateSpec,
    amount: int = 1,
    *,
    hold: Hold = "settled",
    zone: str | None = None,
    **values: object,
) -> GateUse:
    """Return a job's use of a declared gate, with its name resolved.

    Args:
        zone: IANA time zone; needed if that of the hours is a template.
        values: arguments for the placeholders in the name; `{candidate}` is left unresolved.
    """
    if zone is None and spec.hours is not None:
        zone = spec.hours.tz
    named: Mapping[str, object] = values
    return GateUse(
        name=resolve(spec.name, named, keep=frozenset({"candidate"})),
        template=spec.name,
        amount=amount,
        hold=hold,
        shared=spec.shared,
        zone=zone,
    )


def keyed(
    spec: GateSpec,
    amount: int = 1,
    *,
    hold: Hold = "settled",
    zone: str | None = None,
    **values: object,
) -> Keyed:
    """Return what `use_of` does, together with the gate's declaration."""
    return Keyed(spec, use_of(spec, amount, hold=hold, zone=zone, **values))
