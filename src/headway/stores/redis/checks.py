"""Validation of requests before they are sent, by the ledger's own functions."""

from __future__ import annotations

from headway.contract.definitions import FireRequest
from headway.contract.operate import ActRequest
from headway.core.naming import check_name
from headway.stores.ledger.verbs.act import check_edit
from headway.stores.ledger.verbs.claim import check_claim
from headway.stores.ledger.verbs.enqueue import check_batch
from headway.stores.ledger.verbs.signal import check_signal

__all__ = ["check_act", "check_author", "check_claim", "check_fire", "check_signal"]


def check_act(request: ActRequest) -> None:
    """Validate an operator's request.

    Raises:
        CallerError: it has too many jobs, or an invalid value; nothing was written.
    """
    check_batch("act", len(request.ids))
    check_author(request.author)
    check_name("request", request.request)
    check_edit(request.edit)


def check_fire(request: FireRequest) -> None:
    """Validate fires.

    Raises:
        InvalidValue: they are too many; nothing was written.
    """
    check_batch("fire", len(request.moments))


def check_author(author: str) -> None:
    """Validate an author's name.

    Raises:
        InvalidValue: it is invalid; nothing was written.
    """
    check_name("author", author)
