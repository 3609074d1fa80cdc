"""Whether the ports may be opened: to others than this host only with TLS and keys."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...shared.quantities import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What protects the ports."""

    has_keys: bool
    has_tls: bool


def why_not(listening: Mapping[str, Address], protection: Protection) -> str | None:
    """Why the addresses, by flag, should not be opened; `None` where they may."""
    opened = [(flag, each) for flag, each in listening.items() if not each.is_loopback]
    if not opened or (protection.has_keys and protection.has_tls):
        return None
    flag, address = opened[0]
    return f"{flag}: other hosts reach {address}, and {_danger(protection)}"


def remedies(protection: Protection) -> str:
    """What to do about it."""
    missing = []
    if not protection.has_keys:
        missing.append(
            "Make a key: arriero keys bootstrap --state URL (the --state given here; with "
            "memory:// put it into a file for --admin-key-file)."
        )
    if not protection.has_tls:
        missing.append("Give a certificate: balancer --tls-cert FILE --tls-key FILE.")
    return (
        f"{' '.join(missing)} docs/access.md has both step by step. Where something else protects "
        "the ports, such as a proxy that ends TLS and checks who asks, start it with --insecure"
    )


def _danger(protection: Protection) -> str:
    if protection.has_keys:
        return "what they send can be read on the way"
    if protection.has_tls:
        return "anybody may use it"
    return "anybody may use it and read what others send"
