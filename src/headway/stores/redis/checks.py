"""What a request says by itself is checked before it is sent, by the ledger's own functions."""

from __future__ import annotations

from headway.contract.definitions import FireRequest
from headway.contract.operate import ActRequest
from headway.core.naming import check_name
from headway.stores.ledger.verbs.act import check_edit
from headway.stores.ledger.verbs.claim import check_claim
from headway.stores.ledger.verbs.enqueue import check_batch
from headway.stores.ledger.verbs.hear import check_signal

__all__ = ["check_act", "check_author", "check_claim", "check_fire", "check_signal"]


def check_act(request: ActRequest) -> None:
    """Lets an operator's moves pass.

    Raises:
        CallerError: they are too many, or what they say is unusable; nothing was written.
    """
    check_batch("act", len(request.ids))
    check_author(request.author)
    check_name("request", request.request)
    check_edit(request.edit)


def check_fire(request: FireRequest) -> None:
    """Lets fires pass.

    Raises:
        InvalidValue: they are too many; nothing was written.
    """
    check_batch("fire", len(request.moments))


def check_author(author: str) -> None:
    """Lets the name of whoever does something pass.

    Raises:
        InvalidValue: it is unusable; nothing was written.
    """
    check_name("author", author)
