"""Signals made of what providers say: names that fit, texts without end cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from headway.contract.signals import Decided, Signal, SignalKind
from headway.core.errors import InvalidValue
from headway.core.job import MAX_RESULT
from headway.core.naming import MAX_NAME, check_name

MAX_REASON = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Says:
    """What a status of a provider means.

    Attributes:
        kind: what it does.
        decided: of a final one.
        noted: of a final one: whether a label is put on the trail as well, since its job may have
            ended before.
    """

    kind: SignalKind = SignalKind.FINAL
    decided: Decided = Decided.SUCCEEDED
    noted: bool = False

    def signals(
        self, key: str, event: str, *, status: str, body: Mapping[str, object], reason: str = ""
    ) -> list[Signal]:
        """The signals for a key.

        Args:
            key: of the job.
            event: the same whenever the provider says the same again.
            status: the label is made of it.
            body: for the record.
            reason: of an end that is no success.

        Returns:
            In the order in which they are to be told; none if the key can be none.
        """
        try:
            check_name("key", key)
        except InvalidValue:
            return []
        label = fitting(status.upper().replace("-", "_"))
        said = fitting(reason, MAX_REASON)
        note = Signal(
            key=key, event=_event(event, "note"), kind=SignalKind.NOTE, label=label, reason=said
        )
        if self.kind is SignalKind.NOTE:
            return [note]
        main = Signal(
            key=key,
            event=_event(event, self.kind),
            kind=self.kind,
            decided=self.decided,
            body=_recorded(body),
            reason="" if self.decided is Decided.SUCCEEDED else said,
        )
        return [note, main] if self.noted else [main]


def fitting(text: str, most: int = MAX_NAME) -> str:
    """A text that every store can keep: no NUL, not above the limit."""
    return text.replace("\0", "")[:most]


def event_id(*parts: str) -> str:
    """The id of an event that is told apart by these parts."""
    # The lengths keep ("a:b", "c") and ("a", "b:c") apart.
    whole = ":".join(parts)
    if len(whole) <= MAX_NAME - 16 and "\0" not in whole and whole.count(":") == len(parts) - 1:
        return whole
    counted = "".join(f"{len(part)}:{part}" for part in parts)
    return digest_id(counted.encode())


def digest_id(data: bytes) -> str:
    """The id of an event that has no other than what it says."""
    return f"sha256:{sha256(data).hexdigest()}"


def _event(event: str, kind: str) -> str:
    return f"{event}:{kind}"


def _recorded(body: Mapping[str, object]) -> bytes | None:
    data = msgspec.json.encode(dict(body))
    return data if len(data) <= MAX_RESULT else None
