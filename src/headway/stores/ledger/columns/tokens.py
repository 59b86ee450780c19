"""A token's columns: which there are, how they are read and written."""

from __future__ import annotations

from typing import Any

from headway.contract.tokens import TokenSpec
from headway.stores.ledger.packing import decoder, encode
from headway.stores.ledger.tables.tokens import TokenRow

TOKEN = "id, spec, created_at, created_by, used_at"  # noqa: S105  (names of columns)
"""What `read_token` reads and `token_values` tells."""

_spec = decoder(TokenSpec)


def read_token(kept: tuple[Any, ...]) -> TokenRow:
    """The token of a row that was selected by `TOKEN`."""
    _, spec, created_at, created_by, used_at = kept
    return TokenRow(spec=_spec(spec), created_at=created_at, created_by=created_by, used_at=used_at)


def token_values(row: TokenRow) -> tuple[str, bytes, int, str, int | None]:
    """The values of a token, in the order of `TOKEN`."""
    return row.spec.id, encode(row.spec), row.created_at, row.created_by, row.used_at
