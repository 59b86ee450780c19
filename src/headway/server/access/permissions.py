"""Permissions: what a route asks for, and which roles have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from headway.contract.tokens import Role


class Permission(StrEnum):
    """What a caller may do; each route names one."""

    SEND = "send"
    """Make jobs."""
    READ = "read"
    """See jobs."""
    WORK = "work"
    """Claim, settle, beat."""
    SIGNAL = "signal"
    """Tell what the outside world says."""
    ACT = "act"
    """An operator's moves on jobs and permits."""
    OBSERVE = "observe"
    """See lanes, gates, workers, counts, the timetable, the trail."""
    DEFINE = "define"
    """Change lanes, gates, closings, the timetable."""
    TOKENS = "tokens"
    """Make and revoke tokens."""


ROLES: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ, Permission.OBSERVE}),
    Role.PRODUCER: frozenset({Permission.SEND, Permission.READ, Permission.SIGNAL}),
    Role.WORKER: frozenset({Permission.WORK, Permission.READ, Permission.SIGNAL}),
    Role.OPERATOR: frozenset(set(Permission) - {Permission.WORK, Permission.TOKENS}),
    Role.ADMIN: frozenset(Permission),
}
"""What each role may do."""


def permissions(roles: Iterable[Role]) -> frozenset[Permission]:
    """What somebody with these roles may do."""
    return frozenset[Permission]().union(*(ROLES[role] for role in roles))
