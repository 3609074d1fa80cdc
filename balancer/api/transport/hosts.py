"""Checks the hosts that a port answers to, and the pages that may use it.

Protects against DNS rebinding: a foreign page can make its name resolve to this machine's address.
To the browser its requests are then same-origin, and only their `Host` shows that they were not
meant for this server. So `Host` must be an address, `localhost`, or a configured name.

A page's origin must be the one that was asked: the same host and port, and `https` where this port
speaks TLS. Or its host is a configured name: a proxy in front may send another `Host` than the
page's. Pages of other origins may use a port only if an operator names them.

Browsers send no `Origin` with what a page only shows, such as an image. `check_fetch` then goes by
what they send besides.
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
"""Values of `Host` that are remembered."""


@dataclass(frozen=True, slots=True)
class WebOrigin:
    """The origin of a page of the web, as browsers compare it (RFC 6454)."""

    scheme: str
    host: str
    port: int


_DEFAULT_PORTS = {"http": 80, "https": 443}


class AllowedHosts:
    """The configured names: `gpu-box` for any port, `gpu-box:8443` for that port only.

    `listening` are hosts by which the port is called, too; pages elsewhere on them are foreign.
    `origins` are those of pages elsewhere that may use the port, see `checked_origin`.
    """

    def __init__(
        self,
        names: Iterable[str] = (),
        origins: Iterable[str] = (),
        *,
        listening: Iterable[str] = (),
    ) -> None:
        """Raises `ValueError` for an invalid host or origin."""
        self._names = frozenset(map(_split, map(checked_host, names)))
        self._called = self._names | frozenset(map(_split, map(checked_host, listening)))
        self._origins = [_origin_pattern(checked_origin(origin)) for origin in origins]
        self._known: set[str] = set()
        """What `Host` said so far that is right: nearly all requests say the same."""

    def check(
        self, hosts: Sequence[str], origins: Sequence[str], *, over_tls: bool = False
    ) -> None:
        """Raises `ForbiddenHost` or `Forbidden`; takes all `Host` and `Origin` headers."""
        if len(hosts) != 1:
            raise ForbiddenHost(f"there must be one `Host`, not {len(hosts)}", kind="host")
        [host] = hosts
        self._check_name(host, "`Host`")
        for origin in origins:
            if not self._may_use(origin, host, over_tls=over_tls):
                raise _foreign(f"pages from {origin[:_SHOWN]}", host)

    def check_target(self, host: str) -> None:
        """Raises `ForbiddenHost`; takes the host of a request target that is a whole URL."""
        self._check_name(host, "the host of the request's target")

    def check_fetch(
        self, headers: Mapping[str, str], *, acts: bool = False, over_tls: bool = False
    ) -> None:
        """Raises `Forbidden` for what a page elsewhere has a browser `GET` without `Origin`.

        `check` came before. Links of other pages may lead here, but not to what `acts`. Browsers
        say where a page is only to trustworthy hosts. From what they send to others, only programs
        and pages that show by `Referer` that they are our own may have something done.
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
        """Whether an operator has named this origin, so that its pages may read answers."""
        return any(pattern.fullmatch(_plain_origin(origin)) for pattern in self._origins)

    def _check_name(self, host: str, place: str) -> None:
        if host in self._known:
            return
        if not self._answers_to(host):
            raise ForbiddenHost(
                f"{place} {host[:_SHOWN]!r} is not a name of this balancer; if it should be, start "
                "the balancer with `--allowed-host` and that name",
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
        f"{pages} may not use {host[:_SHOWN]}; if they should call models, start the balancer with "
        "`--allowed-origin` and that origin; behind a proxy, with `--allowed-host` and the page's "
        "host",
        kind="origin",
    )


def web_origin(text: str) -> WebOrigin | None:
    """The origin in an `Origin` header; `None` if it is none of a page of the web."""
    if (found := _WEB_ORIGIN.fullmatch(text)) is None:
        return None
    scheme = found[1].lower()
    name, port = _split(text.partition("://")[2])
    return WebOrigin(scheme, name, _DEFAULT_PORTS[scheme] if port is None else port)


def checked_host(name: str) -> str:
    """`name` if it can be a host, with or without a port. Raises `ValueError`."""
    if not _HOST.fullmatch(name):
        raise ValueError("must be a host such as gpu-box.example or gpu-box.example:8443")
    return name


def checked_origin(origin: str) -> str:
    """`origin` if it is what browsers send as `Origin`, or a pattern of such. Raises `ValueError`.

    `http://localhost:*` stands for any port, `app://*` for all of a scheme, and `*` for any origin.
    """
    if origin != ANY_ORIGIN and not _ORIGIN.fullmatch(origin):
        raise ValueError(
            "must be an origin such as https://chat.example, http://localhost:3000, "
            "http://localhost:* (any port) or app://*, or * for any"
        )
    return origin


def _origin_pattern(origin: str) -> re.Pattern[str]:
    """Matches what `_plain_origin` returns."""
    if origin == ANY_ORIGIN:
        return re.compile(".+")
    head, is_open = origin.removesuffix("*"), origin.endswith("*")
    if not is_open:
        return re.compile(re.escape(_plain_origin(origin)))
    if head.endswith("//"):  # of a scheme
        return re.compile(f"{re.escape(head.lower())}[^/]+")
    return re.compile(rf"{re.escape(_plain_origin(head[:-1]))}(?::\d{{1,5}})?", re.ASCII)


def _plain_origin(origin: str) -> str:
    """`origin` in one spelling, without its scheme's own port."""
    if (found := web_origin(origin)) is None:
        return origin.lower()
    is_usual = found.port == _DEFAULT_PORTS[found.scheme]
    return f"{found.scheme}://{found.host}" + ("" if is_usual else f":{found.port}")


def checked_url(url: str | None) -> str | None:
    """`url`, without a slash at its end, if clients can call it. Raises `ValueError`."""
    if url is not None and not _URL.fullmatch(url):
        raise ValueError("must be a URL such as https://llm.example or https://llm.example/arriero")
    return None if url is None else url.removesuffix("/")


def _split(host: str) -> tuple[str, int | None]:
    """Name, in one spelling, and port of what `_HOST` matches."""
    found = _HOST.fullmatch(host)
    if found is None:
        raise ValueError(f"{host!r} is no host")
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
