"""The URL as written by the sender of a webhook."""

from __future__ import annotations

from typing import Any

from headway.server.hooks.request import sender_url


def scope(path: bytes = b"/hooks/twilio", query: bytes = b"", *headers: tuple[bytes, bytes]) -> Any:
    return {
        "scheme": "http",
        "path": path.decode(),
        "raw_path": path,
        "query_string": query,
        "headers": [(b"host", b"inside:8080"), *headers],
    }


def test_public_url_replaces_scheme_and_host_of_the_request() -> None:
    came = scope(b"/hooks/twilio", b"ref=a%3A1&x=+", (b"x-forwarded-host", b"evil.example"))
    assert sender_url(came, "https://hw.example.org") == (
        "https://hw.example.org/hooks/twilio?ref=a%3A1&x=+"
    )
    assert sender_url(came, "https://hw.example.org/inside/") == (
        "https://hw.example.org/inside/hooks/twilio?ref=a%3A1&x=+"
    )


def test_request_says_where_it_went_and_forwarded_hosts_are_not_trusted() -> None:
    came = scope(b"/hooks/twilio", b"", (b"x-forwarded-host", b"evil.example"))
    assert sender_url(came, None) == "http://inside:8080/hooks/twilio"


def test_path_and_query_are_kept_as_written() -> None:
    came = scope(b"/v1/signals/a%2Fb%3A1", b"q=%7e~%C3%BC&&=")
    assert sender_url(came, None) == "http://inside:8080/v1/signals/a%2Fb%3A1?q=%7e~%C3%BC&&="
