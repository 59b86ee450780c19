"""The columns of gates and templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from headway.core.gates.view import Reservation
from headway.stores.ledger.gaterows import GateRow, TemplateRow
from headway.stores.ledger.packing import decode_gate_spec, decoder, encode

GATE = "name, template, pool, used, timer_at, horizon_at, rest"
"""The columns of `read_gate`."""


class _Rest(NamedTuple):
    """Rarely used fields, in one column."""

    capacity: int | None
    closed_until: int | None
    closed_by: str
    closed_reason: str
    last: str
    lanes: tuple[str, ...]
    zone: str | None
    opens: tuple[tuple[int, int], ...]
    reserved: Reservation | None = None


_NOTHING = _Rest(None, None, "", "", "", (), None, ())
_decode_rest = decoder(_Rest)


def encode_rest(row: GateRow) -> bytes | None:
    """Encode the rarely used fields; None if all are empty."""
    rest = _Rest(
        row.capacity,
        row.closed_until,
        row.closed_by,
        row.closed_reason,
        row.last,
        row.lanes,
        row.zone,
        row.opens,
        row.reserved,
    )
    return encode(rest) if rest != _NOTHING else None


def read_gate(kept: tuple[Any, ...]) -> GateRow:
    """Return the gate of a row selected by `GATE`."""
    name, template, pool, used, timer_at, horizon_at, data = kept
    rest = _decode_rest(data) if data is not None else _NOTHING
    return GateRow(
        name=name,
        template=template,
        pool=pool,
        used=used,
        capacity=rest.capacity,
        closed_until=rest.closed_until,
        closed_by=rest.closed_by,
        closed_reason=rest.closed_reason,
        last=rest.last,
        timer_at=timer_at,
        lanes=rest.lanes,
        zone=rest.zone,
        opens=rest.opens,
        horizon_at=horizon_at,
        reserved=rest.reserved,
    )


def read_templates(kept: Iterable[tuple[Any, ...]]) -> Mapping[str, TemplateRow]:
    """Return declared gates by name, from rows of name, spec and override; read-only."""
    return MappingProxyType(
        {
            name: TemplateRow(
                spec=decode_gate_spec(spec),
                override=decode_gate_spec(override) if override is not None else None,
            )
            for name, spec, override in kept
        }
    )
