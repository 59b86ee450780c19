"""The columns of a token."""

from __future__ import annotations

from typing import Any

from headway.contract.tokens import TokenSpec
from headway.stores.ledger.packing import decoder, encode
from headway.stores.ledger.tables.tokens import TokenRow

TOKEN = "id, spec, created_at, created_by, used_at"  # noqa: S105  (names of columns)
"""The columns of `read_token` and `token_values`."""

_spec = decoder(TokenSpec)


def read_token(kept: tuple[Any, ...]) -> TokenRow:
    """Return the token of a row selected by `TOKEN`."""
    _, spec, created_at, created_by, used_at = kept
    return TokenRow(spec=_spec(spec), created_at=created_at, created_by=created_by, used_at=used_at)


def token_values(row: TokenRow) -> tuple[str, bytes, int, str, int | None]:
    """Return the values of a token, in the order of `TOKEN`."""
    return row.spec.id, encode(row.spec), row.created_at, row.created_by, row.used_at
