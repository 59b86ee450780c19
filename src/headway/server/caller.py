"""Callers: their permissions and roles, and the tenants and lanes of their scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from headway.contract.definitions import Role, TokenSpec
from headway.contract.views import JobView, WaitingFlow
from headway.core.errors import Forbidden, InvalidValue
from headway.core.gates.spec import IMPLICIT
from headway.core.job import NewJob
from headway.core.naming import check_name


class Permission(StrEnum):
    """A permission of a caller; each route requires one."""

    SEND = "send"
    """Create jobs."""
    READ = "read"
    """Read jobs."""
    WORK = "work"
    """Claim and settle jobs, send beats."""
    SIGNAL = "signal"
    """Send signals about jobs."""
    ACT = "act"
    """Operate on jobs and permits."""
    OBSERVE = "observe"
    """Read lanes, gates, workers, counts, the timetable and the trail."""
    DEFINE = "define"
    """Change lanes, gates and the timetable; close gates."""
    TOKENS = "tokens"
    """Create and revoke tokens."""


ROLES: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ, Permission.OBSERVE}),
    Role.PRODUCER: frozenset({Permission.SEND, Permission.READ, Permission.SIGNAL}),
    Role.WORKER: frozenset({Permission.WORK, Permission.READ, Permission.SIGNAL}),
    Role.OPERATOR: frozenset(set(Permission) - {Permission.WORK, Permission.TOKENS}),
    Role.ADMIN: frozenset(Permission),
}
"""The permissions of each role."""


def permissions(roles: Iterable[Role]) -> frozenset[Permission]:
    """Return the permissions of these roles."""
    return frozenset[Permission]().union(*(ROLES[role] for role in roles))


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The holder of a token, or the only caller of an open server.

    Attributes:
        id: id of the token; "open" if the server is open.
        name: recorded as the author in the trail.
        tenants: scope of the token; None for all tenants.
        lanes: scope of the token, as names and patterns; None for all lanes.
        closes: names and patterns of gates that the caller's runs may close.
    """

    id: str
    name: str
    may: frozenset[Permission]
    tenants: tuple[str, ...] | None = None
    lanes: tuple[str, ...] | None = None
    closes: tuple[str, ...] = ()

    def check(self, permission: Permission) -> None:
        """Check a permission.

        Raises:
            Forbidden: the caller does not have it.
        """
        if permission not in self.may:
            message = f"the token {self.name!r} does not have the permission '{permission}'"
            roles = ", ".join(role for role, may in ROLES.items() if permission in may)
            raise Forbidden(message, hint=f"use a token with one of the roles {roles}")

    def tenant(self, asked: str | None) -> str | None:
        """Return the requested tenant, or else the caller's only one.

        Returns:
            The tenant; None if none was requested and the caller is for all tenants.

        Raises:
            Forbidden: the requested tenant is outside the caller's scope.
            InvalidValue: none was requested, and the caller is for several tenants.
        """
        if asked is not None:
            self.check_tenant(asked)
            return asked
        if self.tenants is None:
            return None
        if len(self.tenants) == 1:
            return self.tenants[0]
        message = (
            f"the token {self.name!r} is for {len(self.tenants)} tenants; the request has none"
        )
        raise InvalidValue(message, hint=f"name one of {', '.join(self.tenants[:5])}")

    def check_tenant(self, tenant: str) -> None:
        """Check that a tenant is within the caller's scope.

        Raises:
            Forbidden: it is not.
        """
        if self.tenants is not None and tenant not in self.tenants:
            message = f"the token {self.name!r} is not for the tenant {tenant[:80]!r}"
            raise Forbidden(message, hint=f"it is for {', '.join(self.tenants[:5])}")

    def covers(self, lane: str) -> bool:
        """Return whether a lane is within the caller's scope."""
        return self.lanes is None or any(fnmatchcase(lane, one) for one in self.lanes)

    def check_lane(self, lane: str) -> None:
        """Check that a lane is within the caller's scope.

        Raises:
            Forbidden: it is not.
        """
        if not self.covers(lane):
            message = f"the token {self.name!r} is not for the lane {lane[:80]!r}"
            raise Forbidden(message, hint=f"it is for {', '.join((self.lanes or ())[:5])}")

    def check_gate(self, gate: str) -> None:
        """Check that the caller may change a gate.

        A caller scoped to lanes may change the gates `lane:…` of these lanes, and a caller scoped
        to tenants the gates `tenant:…` of these tenants. All other gates are shared.

        Raises:
            Forbidden: the gate is outside the caller's scope.
        """
        what, _, name = gate.partition(":")
        if what == "lane" and self.tenants is None:
            self.check_lane(name)
        elif what == "tenant" and self.lanes is None:
            self.check_tenant(name)
        elif not self.sees_all:
            message = f"the gate {gate[:80]!r} is shared beyond the scope of this token"
            raise Forbidden(message, hint="use a token that is not scoped to tenants or lanes")

    def check_closing(self, gate: str) -> None:
        """Check that a run of the caller may close a gate.

        It may if the token lists the gate, by name or pattern, or if the caller may change it.

        Raises:
            Forbidden: the run may not close the gate.
        """
        if any(_fits(gate, one) for one in self.closes):
            return
        if Permission.DEFINE not in self.may:
            message = f"the token {self.name!r} may not close the gate {gate[:80]!r}"
            raise Forbidden(
                message, hint="the runs of a token created with --close GATE may close it"
            )
        self.check_gate(gate)

    @property
    def sees_all(self) -> bool:
        """Whether the caller is scoped neither to tenants nor to lanes."""
        return self.tenants is None and self.lanes is None

    def sees(self, job: JobView | WaitingFlow | NewJob) -> bool:
        """Return whether a job, or the jobs of a flow, are within the caller's scope.

        Others are reported as unknown.
        """
        return self.covers(job.lane) and (self.tenants is None or job.tenant in self.tenants)

    def whole(self) -> None:
        """Check that the caller may see the whole store.

        Raises:
            Forbidden: the caller is scoped to tenants or lanes.
        """
        self.every_tenant()
        if self.lanes is not None:
            message = (
                f"the token {self.name!r} is limited to some lanes, but this shows all of them"
            )
            raise Forbidden(message, hint="use a token that is not scoped to lanes")

    def every_tenant(self) -> None:
        """Check that the caller may see data of all tenants, within its lanes.

        Raises:
            Forbidden: the caller is scoped to tenants.
        """
        if self.tenants is not None:
            message = (
                f"the token {self.name!r} is limited to some tenants, but this shows all of them"
            )
            raise Forbidden(message, hint="use a token that is not scoped to tenants")

    def worker(self, name: str) -> str:
        """Return the store's id of a worker of this caller.

        It contains the caller's id, so that a token cannot settle runs of another token's workers.
        """
        return check_name("worker", f"{self.id}.{check_name('worker', name)}")


def _fits(gate: str, pattern: str) -> bool:
    """Return whether a pattern covers a gate.

    `all` and implicit gates such as `lane:…` only match patterns with the same prefix.
    """
    if gate == "all":
        return pattern == gate
    prefix = next((one for one in IMPLICIT if gate.startswith(one)), "")
    return pattern.startswith(prefix) and fnmatchcase(gate, pattern)


OPEN_CALLER = Caller(id="open", name="anonymous", may=frozenset(Permission))
"""The caller of an open server."""


def caller_of(spec: TokenSpec) -> Caller:
    """Return the caller that holds a token."""
    return Caller(
        id=spec.id,
        name=spec.name,
        may=permissions(map(Role, spec.roles)),
        tenants=spec.tenants,
        lanes=spec.lanes,
        closes=spec.closes,
    )


def whole_lanes(*lanes: str) -> Callable[[Caller], None]:
    """Return a check that raises Forbidden for callers scoped to tenants or to other lanes."""

    def check(caller: Caller) -> None:
        caller.every_tenant()
        for lane in lanes:
            caller.check_lane(lane)

    return check
