"""How many files and connections this process may have open."""

from __future__ import annotations

import resource
from contextlib import suppress

MOST = 65_536


def allow_many_files() -> None:
    """Raises the soft limit as far as the hard one allows: each long poll is a connection.

    Shells often allow 1,024, for the sake of old programs that use select; none is here.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # a container may forbid it; then it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
