"""Addresses on the open internet: the only ones that strangers may have requests sent to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

_NAT64 = IPv6Network("64:ff9b::/96")
_LOW_32 = 0xFFFF_FFFF


def is_public(text: str) -> bool:
    """Whether an address is on the open internet, and so is each that it stands for.

    Args:
        text: as a resolver gives it; a zone such as `%eth0` makes it a local one.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None or address.is_site_local:
            return False
        inner = _inside(address)
        if inner is not None and not _is_open(inner):
            return False
        if address.ipv4_mapped is not None:
            return True
    return _is_open(address)


def _inside(address: IPv6Address) -> IPv4Address | None:
    """The address of the older kind to which a gateway would carry it on."""
    if address in _NAT64:
        return IPv4Address(int(address) & _LOW_32)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


def _is_open(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved
