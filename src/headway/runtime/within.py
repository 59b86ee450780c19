"""Within: the store as one that inserts in transactions of its callers."""

from __future__ import annotations

from headway.contract.inserting import InsertsWithin
from headway.contract.store import Store
from headway.core.errors import InvalidValue


def inserts_within(store: Store) -> InsertsWithin:
    """The store, if it can insert within a caller's transaction.

    Raises:
        InvalidValue: it cannot.
    """
    if isinstance(store, InsertsWithin):
        return store
    message = f"a {type(store).__name__} cannot send within a transaction of yours"
    hint = (
        "use a store in the same database, postgresql://...; or send after your commit, without"
        " connection=, with a key so that repeating it is safe"
    )
    raise InvalidValue(message, hint=hint)
