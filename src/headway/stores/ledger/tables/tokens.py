"""The table of tokens, and its row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from headway.contract.tokens import TokenSpec


@dataclass(slots=True, kw_only=True)
class TokenRow:
    """A token; what it is, when and by whom it was made, and when it was used last."""

    spec: TokenSpec
    created_at: int
    created_by: str
    used_at: int | None = None


class TokenTable(Protocol):
    """Tokens by their ids, some thousands at most."""

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        """The tokens that have a row, by id; a copy each."""
        ...

    def all(self) -> list[TokenRow]:
        """All tokens, in any order."""
        ...

    def count(self) -> int:
        """How many there are."""
        ...

    def save(self, rows: Iterable[TokenRow]) -> None:
        """Writes tokens."""
        ...

    def remove(self, token: str) -> None:
        """Forgets a token."""
        ...
