"""Which hosts and origins a port answers to.

Protects against DNS rebinding: a foreign page can make its name resolve to this machine's address.
To the browser its requests are then same-origin, and only their `Host` shows that they were not
meant for this server. So `Host` must be an address, `localhost`, or a configured name.

`Origin` must equal the requested host, or be a configured name: a proxy in front may send another
`Host` than the page's. Pages of other origins may use a port only where an operator names them.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from ....shared.errors import Forbidden, ForbiddenHost

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?", re.ASCII | re.IGNORECASE)
_URL = re.compile(rf"https?://(?:{_HOST.pattern})(?:/[\w.~/-]*)?", re.ASCII | re.IGNORECASE)
_ORIGIN = re.compile(
    r"null|https?://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?:\d{1,5}|\*))?"
    r"|(?!https?:)[a-z][a-z0-9+.-]*://(?:\*|[\w.-]+)",
    re.ASCII | re.IGNORECASE,
)
_SHOWN = 100

ANY_ORIGIN = "*"


class AllowedHosts:
    """The configured names: `gpu-box` for any port, `gpu-box:8443` for that port only.

    `origins` are those of pages elsewhere that may use the port, see `checked_origin`.
    """

    def __init__(self, names: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        """Raises `ValueError` for an invalid host or origin."""
        self._names = frozenset(map(_plain, map(checked_host, names)))
        self._origins = [_origin_pattern(checked_origin(origin)) for origin in origins]

    def check(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Raises `ForbiddenHost` or `Forbidden`; takes all `Host` and `Origin` headers."""
        if len(hosts) != 1:
            raise ForbiddenHost(f"there must be one `Host`, not {len(hosts)}")
        [host] = hosts
        self._check_name(host, "`Host`")
        for origin in origins:
            self._check_origin(origin, host)

    def check_target(self, host: str) -> None:
        """Raises `ForbiddenHost`; takes the host of a request target that is a whole URL."""
        self._check_name(host, "the host of the request's target")

    def admits(self, origin: str) -> bool:
        """Whether an operator has named this origin, so that its pages may read answers."""
        return any(pattern.fullmatch(origin) for pattern in self._origins)

    def _check_name(self, host: str, place: str) -> None:
        if not self._answers_to(host):
            raise ForbiddenHost(
                f"{place} {host[:_SHOWN]!r} is not a name of this balancer; if it should be, start "
                "the balancer with `--allowed-host` and that name"
            )

    def _answers_to(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = _plain(found[1])
        return _is_local(name) or bool({name, _plain(host)} & self._names)

    def _check_origin(self, origin: str, host: str) -> None:
        # The scheme is not compared, since a proxy may terminate TLS.
        own = origin.partition("://")[2].lower()
        is_own = bool(own) and (own == host.lower() or own in self._names)
        if not is_own and not self.admits(origin):
            raise Forbidden(
                f"pages from {origin[:_SHOWN]} may not use {host[:_SHOWN]}; if they should call "
                "models, start the balancer with `--allowed-origin` and that origin; behind a "
                "proxy, with `--allowed-host` and the page's host"
            )


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
    if origin == ANY_ORIGIN:
        return re.compile(".+")
    head, is_open = origin.removesuffix("*"), origin.endswith("*")
    if not is_open:
        return re.compile(re.escape(origin), re.IGNORECASE)
    if head.endswith("//"):  # of a scheme
        return re.compile(f"{re.escape(head)}[^/]+", re.IGNORECASE)
    return re.compile(rf"{re.escape(head[:-1])}(?::\d{{1,5}})?", re.ASCII | re.IGNORECASE)


def checked_url(url: str | None) -> str | None:
    """`url`, without a slash at its end, if clients can call it. Raises `ValueError`."""
    if url is not None and not _URL.fullmatch(url):
        raise ValueError("must be a URL such as https://llm.example or https://llm.example/arriero")
    return None if url is None else url.removesuffix("/")


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")


def _is_local(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
