"""The URL of `--state`: `memory://`, `sqlite:///FILE`, or `postgresql://USER@HOST/DATABASE`.

No message from this file contains a password.
"""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

FORMS = "memory://, sqlite:///FILE or postgresql://USER@HOST/DATABASE"

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
PARAMETERS = ("host", "sslmode")
"""Allowed parameters of a URL: the folder of a Unix socket, and libpq's `sslmode`."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """The URL of a store.

    `location` is the file of SQLite. The other fields locate a PostgreSQL database.
    """

    kind: Literal["memory", "sqlite", "postgresql"]
    location: str = ""
    user: str | None = None
    password: str | None = None
    host: str | None = None
    port: int | None = None
    database: str = ""
    ssl_mode: str | None = None

    def __str__(self) -> str:
        """Return the URL for people, without the password."""
        if self.kind != "postgresql":
            return f"{self.kind}://{'/' * bool(self.location)}{self.location}"
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"postgresql://{user}{self.host or 'localhost'}{port}/{self.database}"


def parse_store_url(text: object) -> StoreUrl:
    """Parse the URL of a store. Raises `ValueError` that lists the allowed URLs."""
    if isinstance(text, StoreUrl):
        return text
    if not isinstance(text, str):
        raise ValueError(f"must be {FORMS}")
    parts = _split(text)
    match parts.scheme:
        case "memory" if text == "memory://":
            return StoreUrl("memory")
        case "sqlite":
            return _sqlite(parts)
        case "postgresql" | "postgres":
            return _postgresql(parts)
        case _:
            raise ValueError(f"must be {FORMS}")


def _split(text: str) -> SplitResult:
    if len(text) > 4096 or not text.isprintable():
        raise ValueError(f"must be {FORMS}")
    try:
        return urlsplit(text)
    except ValueError:
        raise ValueError(f"must be {FORMS}") from None


def _sqlite(parts: SplitResult) -> StoreUrl:
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or parts.query or parts.fragment or not path or path == ":memory:":
        raise ValueError("must be sqlite:///FILE with three slashes, four for an absolute path")
    return StoreUrl("sqlite", path)


def _postgresql(parts: SplitResult) -> StoreUrl:
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := [name for name in given if name not in PARAMETERS]:
        raise ValueError(f"takes no parameter `{unknown[0]}`, only {' and '.join(PARAMETERS)}")
    ssl_mode = given.get("sslmode")
    if ssl_mode is not None and ssl_mode not in SSL_MODES:
        raise ValueError(f"has an unknown sslmode; there are {', '.join(SSL_MODES)}")
    database = unquote(parts.path).removeprefix("/")
    if not database or "/" in database:
        raise ValueError("must name a database: postgresql://USER@HOST/DATABASE")
    return StoreUrl(
        "postgresql",
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        host=given.get("host") or parts.hostname,
        port=_port(parts),
        database=database,
        ssl_mode=ssl_mode,
    )


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        raise ValueError("must have a port from 1 to 65535, or none") from None
