"""E-mail as it is sent: an address, and a message in MIME.

Source: RFC 5322 (messages), RFC 2369 and RFC 8058 (List-Unsubscribe, one click).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email import policy
from email.errors import MessageError
from email.headerregistry import Address, AddressHeader, BaseHeader, HeaderRegistry
from email.message import EmailMessage
from email.utils import format_datetime
from functools import cache, lru_cache
from typing import cast

from headway.systems.notifications.senders.sender import Message

MAX_ADDRESS = 254
"""Source: RFC 5321, 4.5.3.1.3, with its erratum 1690."""
MAX_SUBJECT = 500
MAX_URL = 900
"""With its header a URL must fit in a line, since it cannot be folded."""


class _Headers(HeaderRegistry):
    """Makes the class of each header once; the library's own does so for each header of a mail."""

    def __getitem__(self, name: str) -> type[BaseHeader]:
        return _header_class(name)


_header_class = cache(HeaderRegistry().__getitem__)
_header = _Headers()


@lru_cache(maxsize=1024)
def _addressed(name: str, text: str) -> BaseHeader:
    """Return a header of addresses; parsing one takes longer than any other part of a mail."""
    return _header(name, text)


# 7-bit, so that any server carries it as it is.
_MIME = policy.SMTP.clone(cte_type="7bit", header_factory=_header)
_ID = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*", re.ASCII)


def read_address(text: str) -> Address | str:
    """Read `name@example.org`, with or without a display name; or return what is wrong with it."""
    if not text.isprintable() or len(text) > MAX_ADDRESS:
        return "it is too long, or has line breaks or control characters"
    header = _addressed("To", text)
    addresses = cast("AddressHeader", header).addresses
    if header.defects or len(addresses) != 1:
        return "it is not exactly one address"
    address = addresses[0]
    if not address.username or not address.domain:
        return "it has no user or no domain"
    if not address.addr_spec.isascii():
        return "it has letters other than ASCII before or after the @"
    return address


def check_mail(message: Message) -> str:
    """Return why a message cannot be an e-mail; empty if it can. Header injection ends here."""
    fault = read_address(message.to)
    if isinstance(fault, str):
        return f"the address cannot be used: {fault}"
    if not message.title.isprintable() or len(message.title) > MAX_SUBJECT:
        return "the title has line breaks or control characters, or is too long"
    url = message.unsubscribe_url
    if url is not None and (
        not url.isascii() or not url.isprintable() or " " in url or len(url) > MAX_URL
    ):
        return "the unsubscribe URL is not a URL, or is too long"
    return "" if _ID.fullmatch(message.id) else "the id cannot be a Message-ID"


def unsubscribe_headers(message: Message) -> dict[str, str]:
    """Return the headers that end a subscription; one click is offered by https alone."""
    url = message.unsubscribe_url
    if url is None:
        return {}
    one_click = {"List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    return {"List-Unsubscribe": f"<{url}>"} | (one_click if url.startswith("https://") else {})


def write_mail(message: Message, from_: Address, now: int) -> bytes | str:
    """Write a message in MIME; HTML becomes the alternative of the text. `now` is in ms UTC.

    Returns:
        The whole message, all of it ASCII, lines ended by CRLF; or why it cannot be an e-mail.
    """
    if fault := check_mail(message):
        return fault
    mail = EmailMessage(_MIME)
    try:
        mail["From"] = _addressed("From", str(from_))
        mail["To"] = _addressed("To", message.to)
        mail["Subject"] = message.title
        mail["Date"] = format_datetime(datetime.fromtimestamp(now // 1000, UTC))
        mail["Message-ID"] = f"<{message.id}@{from_.domain}>"
        mail.set_content(message.text or "\n")
        if message.html is not None:
            mail.add_alternative(message.html, subtype="html")
        written = mail.as_bytes()
    except (MessageError, ValueError, LookupError) as error:
        return f"it cannot be written as an e-mail: {type(error).__name__}"
    # Folding would break a long URL in two, or encode it.
    head = "".join(f"{name}: {text}\r\n" for name, text in unsubscribe_headers(message).items())
    return head.encode() + written
