"""The table of tokens, and its row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from headway.contract.tokens import TokenSpec


@dataclass(slots=True, kw_only=True)
class TokenRow:
    """A token, when and by whom it was created, and when it was last used."""

    spec: TokenSpec
    created_at: int
    created_by: str
    used_at: int | None = None


class TokenTable(Protocol):
    """Tokens by id, some thousands at most."""

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        """Return copies of the tokens that exist, by id."""
        ...

    def all(self) -> list[TokenRow]:
        """Return all tokens, in any order."""
        ...

    def count(self) -> int:
        """Return how many there are."""
        ...

    def save(self, rows: Iterable[TokenRow]) -> None:
        """Write tokens."""
        ...

    def remove(self, token: str) -> None:
        """Remove a token."""
        ...
