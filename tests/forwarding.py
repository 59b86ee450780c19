"""Wrappers of stores that forward what they do not define themselves."""

from __future__ import annotations

from typing import Any

from typing_extensions import get_protocol_members

from headway.contract.extensions import InsertsWithin, Movable, Repairable, SendsAhead


def forward_extensions(wrapper: Any, inner: object) -> None:
    """Give a wrapper with a `__getattr__` the extensions of the store that it wraps.

    From Python 3.12 on, `isinstance` does not use `__getattr__` to find the methods of a protocol.
    """
    for extension in (InsertsWithin, Movable, Repairable, SendsAhead):
        if isinstance(inner, extension):
            names = get_protocol_members(extension)
            vars(wrapper).update({name: getattr(wrapper, name) for name in names})
