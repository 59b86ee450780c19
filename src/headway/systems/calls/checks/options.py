"""What a template says of its checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class BlacklistOptions:
    """Refuses these phones.

    Attributes:
        phones: E.164, or the beginning of one with a star: "+1900*".
    """

    phones: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidityOptions:
    """Refuses what can be nobody's phone.

    Attributes:
        countries: only phones that begin with one of these, such as "+1"; empty for any.
    """

    countries: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpOptions:
    """Asks a service of the caller's: POST with the lead as JSON; its answer is JSON.

    Attributes:
        url: of it.
        field: of the answer, with dots into objects.
        expected: what stands there if the lead may be called.
        timeout_ms: for each try.
        tries: at most so many; each after a failure of the one before.
        on_failure: what becomes of the lead if no try was answered.
    """

    url: str
    field: str = "allowed"
    expected: str | int | bool | None = True
    timeout_ms: int = 2_000
    tries: int = 2
    on_failure: Literal["proceed", "skip"] = "skip"


CheckOptions = BlacklistOptions | ValidityOptions | HttpOptions
