"""What a kind needs of gates, and what one of its jobs asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateNeed, GateSpec, GateUse
from headway.core.job import MAX_SHARED_GATES
from headway.core.naming import ALWAYS_KNOWN, check_name, placeholders, resolve
from headway.core.zone import find_zone

CANDIDATE = frozenset({"candidate"})


class Needs:
    """The gates of one stage, in the order declared.

    Attributes:
        needs: each gate with its amount.
        fixed: what every job asks for, if nothing in a name depends on the job; else None.
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
            _refuse_unknown(kind, need.spec, known)
        if sum(need.spec.shared for need in self.needs) > MAX_SHARED_GATES:
            message = f"the kind {kind!r} needs more than {MAX_SHARED_GATES} shared gates"
            raise InvalidValue(message, hint="let one gate stand for several")
        self.fixed = self._always_the_same()

    @property
    def specs(self) -> tuple[GateSpec, ...]:
        """The gates themselves."""
        return tuple(need.spec for need in self.needs)

    def uses(self, values: Mapping[str, object]) -> tuple[GateUse, ...]:
        """What a job with these values asks for.

        Args:
            values: its arguments, with `tenant`, `lane` and `kind` among them.

        Returns:
            The gates with their names resolved, in the order declared.

        Raises:
            InvalidValue: a name cannot be resolved, a zone is unknown, or two are the same gate.
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
            if placeholders(need.spec.name) or placeholders(zone):
                return None
        names = [need.spec.name for need in self.needs]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            message = f"the kind {self.kind!r} names the gate {twice!r} twice"
            raise InvalidValue(message, hint="name it once, with the sum as amount")
        return tuple(self._use(need, {}) for need in self.needs)

    def _use(self, need: GateNeed, values: Mapping[str, object]) -> GateUse:
        spec = need.spec
        zone = None
        if spec.hours is not None:
            zone = resolve(spec.hours.tz, values)
            find_zone(zone)
        return GateUse(
            name=resolve(spec.name, values, keep=self._keep),
            template=spec.name,
            amount=need.amount,
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
    raise InvalidValue(message, hint="give Slots, Rate, Hours, Pool, or what their take() returns")


def _refuse_unknown(kind: str, spec: GateSpec, known: frozenset[str]) -> None:
    zone = spec.hours.tz if spec.hours else ""
    for field in (*placeholders(spec.name), *placeholders(zone)):
        if field not in known:
            message = f"the gate {spec.name!r} needs an argument {field!r}, which {kind!r} lacks"
            raise InvalidValue(message, hint="add the parameter, or correct the gate")


class KnownValues:
    """The values that a job's names may be made of."""

    __slots__ = ("kind", "lane", "tenant", "values")

    def __init__(self, kind: str, lane: str, values: Mapping[str, object]) -> None:
        self.kind = kind
        self.lane = lane
        self.tenant = ""
        self.values = values

    def all(self) -> Mapping[str, object]:
        """The arguments, with `tenant`, `lane` and `kind` among them."""
        return {**self.values, "tenant": self.tenant, "lane": self.lane, "kind": self.kind}

    def take(
        self, what: str, template: str | None, given: str | None, *, empty: bool = False
    ) -> str | None:
        """The name that was given, else the template filled.

        Args:
            what: what the name names; a tenant is known from then on.
            template: from the kind; None for none.
            given: by the caller; None for none.
            empty: whether the empty name is allowed.

        Returns:
            The name; None for none.

        Raises:
            InvalidValue: it is not a name.
        """
        if given is not None:
            name = check_name(what, given, empty=empty)
        elif template is None or not placeholders(template):
            name = template
        else:
            name = resolve(template, self.all(), what=what)
        if what == "tenant":
            self.tenant = name or ""
        return name
