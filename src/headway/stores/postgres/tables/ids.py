"""Ids of jobs as the server takes them."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.check import is_job_id
from headway.stores.postgres.arrays import Ids


def ids_of(ids: Iterable[str]) -> Ids:
    """Those that a job can have, each once, in their order; no job has any other."""
    return Ids(filter(is_job_id, dict.fromkeys(ids)))
