"""The telephony reference lists the same codes and statuses as the code."""

from __future__ import annotations

import re

from headway.systems.telephony.twilio import CALLEE, PROVIDER, SENDER
from headway.systems.telephony.twilio_webhooks import CALLS as OF_TWILIO
from headway.systems.telephony.twilio_webhooks import MESSAGES
from headway.systems.telephony.vonage_webhooks import CALLS as OF_VONAGE
from tests.docs.pages import ROOT

LINES = (ROOT / "docs/reference/telephony.md").read_text(encoding="utf-8").splitlines()


def words(row: str, column: int) -> set[str]:
    """Return the code spans in one column of a row."""
    return set(re.findall(r"`([^`]+)`", row.split("|")[column + 1]))


def rows(head: str) -> dict[str, str]:
    """Return the rows of the table with this head, by their first word."""
    at = next(number for number, line in enumerate(LINES) if line.startswith(head))
    found: dict[str, str] = {}
    for line in LINES[at + 2 :]:
        if not line.startswith("|"):
            break
        found[line.split("|")[1].strip(" `")] = line
    return found


def test_twilio_codes_are_listed_by_whom_they_concern() -> None:
    by_whom = rows("| it concerns")
    for starts, codes in [
        ("the sender", SENDER),
        ("the provider", PROVIDER),
        ("the callee", CALLEE),
    ]:
        [row] = [line for first, line in by_whom.items() if first.startswith(starts)]
        assert {int(one) for one in re.findall(r"\b\d{5}\b", row)} == codes


def test_each_provider_status_is_listed_with_its_meaning() -> None:
    calls, messages = rows("| of a call"), rows("| of a message")
    for table, column, known in [
        (calls, 1, OF_TWILIO),
        (calls, 2, OF_VONAGE),
        (messages, 1, MESSAGES),
    ]:
        told = {word: status for status, row in table.items() for word in words(row, column)}
        assert told == {word: str(status) for word, status in known.items()}


def test_each_status_is_listed_with_whether_the_line_is_free() -> None:
    for status, row in rows("| of a call").items():
        ended = {one.value: one.ended for one in OF_TWILIO.values()}[status]
        assert row.rstrip("| ").endswith("free" if ended else "taken")
