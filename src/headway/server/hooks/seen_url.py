"""The URL of a request as its sender wrote it, whatever a proxy made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def seen_url(scope: Mapping[str, Any], public_url: str | None) -> str:
    """The URL of a request as its sender wrote it.

    Path and query are taken byte for byte. The rest is the server's public address; without one,
    the scheme and the host are the request's own: of the headers of proxies only
    X-Forwarded-Proto counts, and only that of a trusted one, which the listener has seen to.

    Args:
        scope: of the request, as ASGI has it.
        public_url: the server's address as the outside world sees it; None if that is not known.
    """
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    tail = path.partition(b"?")[0] + (b"?" + query if query else b"")
    told = tail.decode("utf-8", "replace")
    if public_url is not None:
        return public_url.rstrip("/") + told
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    return f"{scope['scheme']}://{host.decode('latin-1')}{told}"
