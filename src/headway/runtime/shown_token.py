"""What is told of a token: everything but what its secrets are known by."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.tokens import Role
from headway.contract.views import TokenView


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownToken:
    """A token, as it is listed.

    Attributes:
        id: 16 hexadecimal digits.
        name: for people; stands on the trail as the author of what is done with it.
        roles: what it may do.
        tenants: only these; None for any.
        lanes: only these, or those that fit a pattern; None for any.
        closes: gates that its runs may close, or patterns of these.
        expires_at: when it ends; None for never.
        created_at: when it was made.
        created_by: the author of its making.
        used_at: when it was last used, exact to a minute; None for never.
        old_until_at: until when a secret that was replaced is still accepted; None for none.
    """

    id: str
    name: str
    roles: tuple[Role, ...]
    tenants: tuple[str, ...] | None
    lanes: tuple[str, ...] | None
    closes: tuple[str, ...]
    expires_at: int | None
    created_at: int
    created_by: str
    used_at: int | None
    old_until_at: int | None


def shown_token(view: TokenView, now: int) -> ShownToken:
    """What is told of a token.

    Args:
        view: as the store tells it.
        now: the store's time, ms UTC.

    Returns:
        The same, without digests.
    """
    spec = view.spec
    old = [one.until_at for one in spec.secrets if one.until_at is not None and one.until_at > now]
    return ShownToken(
        id=spec.id,
        name=spec.name,
        roles=spec.roles,
        tenants=spec.tenants,
        lanes=spec.lanes,
        closes=spec.closes,
        expires_at=spec.expires_at,
        created_at=view.created_at,
        created_by=view.created_by,
        used_at=view.used_at,
        old_until_at=max(old, default=None),
    )
