"""Ids of jobs as the server takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headway.stores.postgres.arrays import Ids

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def ids_of(ids: Iterable[str]) -> Ids:
    """Those that a job can have, each once, in their order; no job has any other."""
    is_one = _UUID.fullmatch
    return Ids(one for one in dict.fromkeys(ids) if is_one(one))
