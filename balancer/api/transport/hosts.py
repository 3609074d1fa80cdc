"""Checks the host names that a port answers to, and the web pages that may use it.

This protects against DNS rebinding: a foreign page can make its name resolve to this machine's
address. The browser then takes its requests for same-origin, and only their `Host` shows the
foreign name. So `Host` must be an address, `localhost`, or a configured name.

The origin of a page must be the requested one: the same host and port, and `https` if this port
speaks TLS. The page's host may also be a configured name, because a proxy may send another `Host`
than the page's. Pages of other origins may use a port only if an operator allows them.

Browsers send no `Origin` for content that a page only shows, such as images. `check_fetch` then
uses other headers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from ....shared.errors import Forbidden, ForbiddenHost

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?", re.ASCII | re.IGNORECASE)
_URL = re.compile(rf"https?://(?:{_HOST.pattern})(?:/[\w.~/-]*)?", re.ASCII | re.IGNORECASE)
_WEB_ORIGIN = re.compile(rf"(https?)://(?:{_HOST.pattern})", re.ASCII | re.IGNORECASE)
_ORIGIN = re.compile(
    r"null|https?://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?:\d{1,5}|\*))?"
    r"|(?!https?:)[a-z][a-z0-9+.-]*://(?:\*|[\w.-]+)",
    re.ASCII | re.IGNORECASE,
)
_SHOWN = 100

ANY_ORIGIN = "*"

MAX_KNOWN = 256
"""Maximum values of `Host` that are remembered."""


@dataclass(frozen=True, slots=True)
class WebOrigin:
    """The origin of a web page, as browsers compare origins (RFC 6454)."""

    scheme: str
    host: str
    port: int


_DEFAULT_PORTS = {"http": 80, "https": 443}


class AllowedHosts:
    """The configured names: `gpu-box` for any port, `gpu-box:8443` for that port only.

    `listening` are further hosts by which clients call the port; pages at their other ports are
    foreign. `origins` are foreign origins that may use the port, see `checked_origin`.
    """

    def __init__(
        self,
        names: Iterable[str] = (),
        origins: Iterable[str] = (),
        *,
        listening: Iterable[str] = (),
    ) -> None:
        """Parse the names. Raises `ValueError` for an invalid host or origin."""
        self._names = frozenset(map(_split, map(checked_host, names)))
        self._called = self._names | frozenset(map(_split, map(checked_host, listening)))
        self._origins = [_origin_pattern(checked_origin(origin)) for origin in origins]
        self._known: set[str] = set()
        """Values of `Host` that were right so far; nearly all requests send the same."""

    def check(
        self, hosts: Sequence[str], origins: Sequence[str], *, over_tls: bool = False
    ) -> None:
        """Check all `Host` and `Origin` headers of a request.

        Raises `ForbiddenHost` or `Forbidden`.
        """
        if len(hosts) != 1:
            raise ForbiddenHost(f"there must be one `Host`, not {len(hosts)}", kind="host")
        [host] = hosts
        self._check_name(host, "`Host`")
        for origin in origins:
            if not self._may_use(origin, host, over_tls=over_tls):
                raise _foreign(f"pages from {origin[:_SHOWN]}", host)

    def check_target(self, host: str) -> None:
        """Check the host of a request target that is a whole URL. Raises `ForbiddenHost`."""
        self._check_name(host, "the host of the request's target")

    def check_fetch(
        self, headers: Mapping[str, str], *, acts: bool = False, over_tls: bool = False
    ) -> None:
        """Check a `GET` without `Origin` that a foreign page may have caused. Raises `Forbidden`.

        Call `check` first. Links of other pages may lead here, but not to a route that `acts`.
        Browsers describe the page only to trustworthy hosts. At other hosts, only programs may use
        a route that `acts`, and pages whose `Referer` shows that they are the port's own.
        """
        if "Origin" in headers:
            return
        if (site := headers.get("Sec-Fetch-Site")) is not None:
            is_link = headers.get("Sec-Fetch-Mode") == "navigate" and not acts
            is_right = site in ("same-origin", "none") or is_link
        elif not acts:
            is_right = True
        elif (page := headers.get("Referer")) is not None:
            origin = "/".join(page.split("/", 3)[:3])
            is_right = self._may_use(origin, headers["Host"], over_tls=over_tls)
        else:
            is_right = not headers.get("User-Agent", "").startswith("Mozilla/")
        if not is_right:
            raise _foreign("pages of other origins", headers["Host"])

    def admits(self, origin: str) -> bool:
        """Return whether an operator allows pages of this origin to read answers."""
        return any(pattern.fullmatch(_plain_origin(origin)) for pattern in self._origins)

    def _check_name(self, host: str, place: str) -> None:
        if host in self._known:
            return
        if not self._answers_to(host):
            raise ForbiddenHost(
                f"{place} {host[:_SHOWN]!r} is not a name of this balancer; to allow the "
                "name, start the balancer with `--allowed-host` and the name",
                kind="host",
            )
        if len(self._known) < MAX_KNOWN:
            self._known.add(host)

    def _answers_to(self, host: str) -> bool:
        if _HOST.fullmatch(host) is None:
            return False
        name, port = _split(host)
        return _is_local(name) or bool({(name, None), (name, port)} & self._called)

    def _may_use(self, origin: str, host: str, *, over_tls: bool) -> bool:
        found = web_origin(origin)
        if found is None or (over_tls and found.scheme != "https"):
            return self.admits(origin)
        # A proxy may end TLS, so the scheme of the page is the one that `Host` was written for.
        default = _DEFAULT_PORTS[found.scheme]
        own = {
            (name, default if port is None else port) for name, port in {_split(host), *self._names}
        }
        return (found.host, found.port) in own or self.admits(origin)


def _foreign(pages: str, host: str) -> Forbidden:
    return Forbidden(
        f"{pages} may not use {host[:_SHOWN]}. To let them call models, start the balancer "
        "with `--allowed-origin` and their origin; behind a proxy, with `--allowed-host` "
        "and the host of the page",
        kind="origin",
    )


def web_origin(text: str) -> WebOrigin | None:
    """Return the origin in an `Origin` header; `None` if it is not the origin of a web page."""
    if (found := _WEB_ORIGIN.fullmatch(text)) is None:
        return None
    scheme = found[1].lower()
    name, port = _split(text.partition("://")[2])
    return WebOrigin(scheme, name, _DEFAULT_PORTS[scheme] if port is None else port)


def checked_host(name: str) -> str:
    """Return `name` if it can be a host, with or without a port. Raises `ValueError`."""
    if not _HOST.fullmatch(name):
        raise ValueError("must be a host such as gpu-box.example or gpu-box.example:8443")
    return name


def checked_origin(origin: str) -> str:
    """Return `origin` if browsers can send it as `Origin`, or if it is a pattern of origins.

    Raises `ValueError`.

    `http://localhost:*` allows any port, `app://*` any origin with this scheme, and `*` any
    origin.
    """
    if origin != ANY_ORIGIN and not _ORIGIN.fullmatch(origin):
        raise ValueError(
            "must be an origin such as https://chat.example, http://localhost:3000, "
            "http://localhost:* (any port) or app://*, or * for any"
        )
    return origin


def _origin_pattern(origin: str) -> re.Pattern[str]:
    """Return the pattern that matches results of `_plain_origin`."""
    if origin == ANY_ORIGIN:
        return re.compile(".+")
    head, is_open = origin.removesuffix("*"), origin.endswith("*")
    if not is_open:
        return re.compile(re.escape(_plain_origin(origin)))
    if head.endswith("//"):  # of a scheme
        return re.compile(f"{re.escape(head.lower())}[^/]+")
    return re.compile(rf"{re.escape(_plain_origin(head[:-1]))}(?::\d{{1,5}})?", re.ASCII)


def _plain_origin(origin: str) -> str:
    """Return `origin` in one spelling, without the default port of its scheme."""
    if (found := web_origin(origin)) is None:
        return origin.lower()
    is_usual = found.port == _DEFAULT_PORTS[found.scheme]
    return f"{found.scheme}://{found.host}" + ("" if is_usual else f":{found.port}")


def checked_url(url: str | None) -> str | None:
    """Return `url`, without a slash at its end, if clients can call it. Raises `ValueError`."""
    if url is not None and not _URL.fullmatch(url):
        raise ValueError("must be a URL such as https://llm.example or https://llm.example/arriero")
    return None if url is None else url.removesuffix("/")


def _split(host: str) -> tuple[str, int | None]:
    """Return the name, in one spelling, and the port of a text that `_HOST` matches."""
    found = _HOST.fullmatch(host)
    if found is None:
        raise ValueError(f"{host!r} is not a host")
    name = found[1].lower().removesuffix(".")
    if name.startswith("["):
        name = f"[{_address(name) or name[1:-1]}]"
    return name, None if found[2] is None else int(found[2])


def _is_local(name: str) -> bool:
    return name == "localhost" or _address(name) is not None


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
