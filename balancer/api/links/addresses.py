"""Which addresses are public: those that pictures may be fetched from.

A balancer stands where clients do not: whoever could have it fetch from private addresses would
reach what is behind its firewall, the metadata of its host, or its own ports.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

_WITH_IPV4 = tuple(
    IPv6Network(text)
    for text in (
        *("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96"),  # compatible, mapped, translated
        *("64:ff9b::/96", "64:ff9b:1::/48"),  # NAT64
        *("2001::/32", "2002::/16"),  # Teredo, 6to4
    )
)
"""IPv6 addresses that stand for IPv4 ones, private ones perhaps."""


def is_public(text: str) -> bool:
    """Whether `text` is an address that anybody on the internet can reach."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    is_open = address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )
    return is_open and not _stands_for_another(address)


def _stands_for_another(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return False
    return any(address in network for network in _WITH_IPV4)
