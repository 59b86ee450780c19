"""The operations of the contract, each a function of a ledger and a request."""

from __future__ import annotations

from headway.stores.ledger.verbs.act import act, release_permit
from headway.stores.ledger.verbs.claim import beat, claim, lead
from headway.stores.ledger.verbs.define import define
from headway.stores.ledger.verbs.enqueue import enqueue, fire, restore
from headway.stores.ledger.verbs.moving import export_chunk, import_chunk
from headway.stores.ledger.verbs.read import read
from headway.stores.ledger.verbs.settle import settle
from headway.stores.ledger.verbs.signal import signal
from headway.stores.ledger.verbs.sweep import sweep

__all__ = [
    "act",
    "beat",
    "claim",
    "define",
    "enqueue",
    "export_chunk",
    "fire",
    "import_chunk",
    "lead",
    "read",
    "release_permit",
    "restore",
    "settle",
    "signal",
    "sweep",
]
