"""The table [calls] of headway.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from headway.runtime.settings_table import OpenTable, read_table
from headway.server.bodies.base import Span
from headway.systems.calls.template import DEFAULT, Template, TemplateBody

Shortest = Annotated[Span, Field(ge=1)]
Inner = dict[str, Any]


class CallsSettings(OpenTable):
    """What holds for all calls; spans are milliseconds once they are read.

    Attributes:
        customer_limit: calls to one phone in any window, whatever its template says.
        customer_per: the window.
        checks_at_once: leads whose pre-checks run at once.
        call_deadline: how long a call may go on without an event before its provider is asked.
        ask_again: how long a provider that says "still running", or nothing, is left alone.
        listing_lag: how long after it was asked for a call a provider may list it at the latest;
            one that is not listed by then was never placed.
        jitter: leads due at one moment are spread over so long, never before it.
        number_rest: how long a number is left alone that its provider refused to call from.
        provider_rest: the same where the provider refused all, and did not say how long.
        most_refused: so often refused a number, a lead ends with NUMBER_UNAVAILABLE.
        keep: how long a finished lead is kept.
        template: the template `default`, until one of this name is stored.
        table: your own table as the truth.
        migration: from an older system.
        alerts: thresholds.
        reports_at_once: the most concurrent reports to the webhooks of one reseller.
        reporting_keys: sign what is reported; each does, so that receivers may change.
        reporting_private: whether results may be reported to private addresses.
    """

    customer_limit: int = Field(default=7, ge=0)
    customer_per: Shortest = 3_600_000
    checks_at_once: int = Field(default=100, ge=1)
    call_deadline: Shortest = 1_800_000
    ask_again: Shortest = 300_000
    listing_lag: Shortest = 300_000
    jitter: Span = 200
    number_rest: Shortest = 300_000
    provider_rest: Shortest = 30_000
    most_refused: int = Field(default=20, ge=1)
    keep: Shortest = 2_592_000_000
    template: TemplateBody = TemplateBody()
    table: Inner = Field(default={})
    migration: Inner = Field(default={})
    alerts: Inner = Field(default={})
    reports_at_once: int = Field(default=4, ge=1)
    reporting_keys: list[str] = Field(default=[], repr=False)
    reporting_private: bool = False

    @property
    def default(self) -> Template:
        """What holds for leads that name no template, until one named `default` is stored."""
        return Template(name=DEFAULT, **dict(self.template))


def read_settings(written: Mapping[str, object]) -> CallsSettings:
    """Read the table [calls].

    Raises:
        InvalidValue: a key is unknown, or a value is not valid; the message names it.
    """
    return read_table("calls", CallsSettings, written)
