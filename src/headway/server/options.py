"""What a server is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.job import TRAIL_KEPT_MS

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """What a server is told.

    Attributes:
        open_here: anybody may call, until the store has its first token; for loopback alone.
        hosts: names under which browsers may call; None for any. Given where the server is open.
        public_url: its address as the outside world sees it; the base of signal URLs.
        signing_keys: of signal URLs; the first signs, all are accepted.
        trusted_proxies: addresses whose X-Forwarded-* headers are believed.
        hooks: by provider, as the settings file says.
        alerts: as the settings file says.
        max_body: bytes of one request.
        body_timeout_s: how long a body may take to arrive.
        requests_per_s: of one token; None for any number.
        longest_wait_s: of one long poll.
        events_each_s: between two snapshots of an event stream.
        chores: whether it sweeps and keeps the timetable's fires ahead.
        keep_trail_ms: how long lines of the trail are kept.
        traces: whether it minds the traces of its callers; needs the extra `otel`.
        docs: whether it shows its documentation in a browser.
    """

    open_here: bool = False
    hosts: tuple[str, ...] | None = None
    public_url: str | None = None
    signing_keys: tuple[str, ...] = field(default=(), repr=False)
    trusted_proxies: tuple[str, ...] = ()
    hooks: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    alerts: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    max_body: int = 16 * MIB
    body_timeout_s: float = 30.0
    requests_per_s: float | None = None
    longest_wait_s: float = 60.0
    events_each_s: float = 1.0
    chores: bool = True
    keep_trail_ms: int = TRAIL_KEPT_MS
    traces: bool = False
    docs: bool = False
