"""Views of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.tokens import TokenSpec
from headway.contract.views.query import Query


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenView:
    """A token, its author, and when it was created and last used.

    Attributes:
        spec: with the digests of its secrets.
        created_at: when it was made.
        created_by: the author of its making.
        used_at: when it was last used, exact to a minute; None for never.
    """

    spec: TokenSpec
    created_at: int
    created_by: str
    used_at: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokensQuery(Query[tuple[TokenView, ...]]):
    """Tokens by id: all of them, at most 10,000, or these."""

    ids: tuple[str, ...] | None = None
