"""Addresses on the open internet: the only ones that strangers may have requests sent to.

The ranges are listed here because those of `ipaddress` differ between versions of Python.

Source: the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890), where they say
that a range is not globally reachable; RFC 7526 and RFC 9637; the providers' documentation for
addresses at which a cloud serves its instances.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_CLOSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by carriers; the metadata of Alibaba Cloud
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # the platform of Azure
            "169.254.0.0/16",  # link-local; the metadata of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; the metadata of Oracle Cloud
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4, deprecated
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_OPEN_6 = IPv6Network("2000::/3")
"""Global unicast; the rest is loopback, link-local, unique local (with the metadata of AWS),
multicast, reserved."""
_CLOSED_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which a relay would carry to the IPv4 address within
            "3fff::/20",  # documentation
        ),
    )
)
_CARRYING_4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""Addresses that end with the IPv4 address that is reached: mapped ones, and those of NAT64."""
_LOW_32 = 0xFFFF_FFFF


def is_public(text: str) -> bool:
    """Whether an address is on the open internet, and so is the one that it stands for.

    Args:
        text: as a resolver gives it; a zone such as `%eth0` makes it a local one.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        if not any(address in one for one in _CARRYING_4):
            return address in _OPEN_6 and not any(address in one for one in _CLOSED_6)
        address = IPv4Address(int(address) & _LOW_32)
    return not any(address in one for one in _CLOSED_4)
