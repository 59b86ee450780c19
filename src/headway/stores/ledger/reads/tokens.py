"""Views of tokens."""

from __future__ import annotations

from headway.contract.views import TokensQuery, TokenView
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.tokenchanges import is_token_id


def read_tokens(ledger: Ledger, query: TokensQuery) -> tuple[TokenView, ...]:
    """Return tokens by id, each once."""
    if query.ids is None:
        rows = ledger.tokens.all()
    else:
        rows = ledger.tokens.load(token for token in query.ids if is_token_id(token)).values()
    views = (
        TokenView(
            spec=row.spec,
            created_at=row.created_at,
            created_by=row.created_by,
            used_at=row.used_at,
        )
        for row in rows
    )
    return tuple(sorted(views, key=lambda view: view.spec.id))
