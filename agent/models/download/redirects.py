"""Where a download may be sent on to, and what it takes along."""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import SplitResult, urljoin, urlsplit

MAX_REDIRECTS = 10

_SECRET = {"authorization", "cookie"}


class RedirectError(Exception):
    """A server sent the download to where it must not go."""


def next_url(url: str, location: str) -> str:
    """Where `location`, the answer of `url`, leads.

    To `https`, or to where the download is already; from loopback also to loopback. Raises
    `RedirectError`.
    """
    try:
        target = urljoin(url, location)
        old, new = urlsplit(url), urlsplit(target)
        is_local = _is_loopback(old.hostname) and _is_loopback(new.hostname)
        is_near = _origin(old) == _origin(new) or (is_local and new.scheme in ("http", "https"))
    except ValueError as error:
        raise RedirectError(f"{_shown(url)} sends on to an unreadable address") from error
    if not new.hostname or not (new.scheme == "https" or is_near):
        raise RedirectError(f"{_shown(url)} sends on to {_shown(target)}, which is not https://")
    return target


def headers_for(url: str, target: str, headers: Mapping[str, str]) -> dict[str, str]:
    """`headers` for `target`: a token goes to no other host."""
    if _origin(urlsplit(url)) == _origin(urlsplit(target)):
        return dict(headers)
    return {name: value for name, value in headers.items() if name.lower() not in _SECRET}


def _shown(url: str) -> str:
    """Without the query, which may hold a signature."""
    return url.partition("?")[0]


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or default


def _is_loopback(host: str | None) -> bool:
    if host is None:
        return False
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
