"""The proxy through which this host reaches an address, by environment variables.

`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in capitals or not, have the same meaning as for curl.
An address of this host is always reached directly.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_NAMES: Mapping[str, tuple[str, ...]] = {
    "http": ("http",),
    "https": ("https",),
    "ws": ("ws", "http"),
    "wss": ("wss", "https"),
}
"""For each scheme, the names that select its proxy variable, such as `https_proxy`."""


def proxy_for(url: str) -> str | None:
    """Return the address of the proxy for `url`; `None` without a proxy. It may contain a
    password.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_here(host) or proxy_bypass(host if parts.port is None else f"{host}:{parts.port}"):
        return None
    known = getproxies()
    found = (known.get(name) for name in (*_NAMES.get(parts.scheme, ()), "all"))
    return next(filter(None, found), None)


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
