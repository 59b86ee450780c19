"""One real day of departures from New York's three airports, dispatched by Headway."""

from __future__ import annotations
