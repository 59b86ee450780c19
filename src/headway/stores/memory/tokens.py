"""The table of tokens in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headway.stores.ledger.tables.tokens import TokenRow
from headway.stores.memory.journal import Journal


class MemoryTokens:
    """See `TokenTable`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: dict[str, TokenRow] = {}

    def load(self, ids: Iterable[str]) -> dict[str, TokenRow]:
        return {one: replace(self._rows[one]) for one in ids if one in self._rows}

    def all(self) -> list[TokenRow]:
        return [replace(row) for row in self._rows.values()]

    def count(self) -> int:
        return len(self._rows)

    def save(self, rows: Iterable[TokenRow]) -> None:
        for row in rows:
            self._journal.put(self._rows, row.spec.id, replace(row))

    def remove(self, token: str) -> None:
        self._journal.drop(self._rows, token)
