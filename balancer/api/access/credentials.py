"""The keys that a request shows, in its headers; never in its URL."""

from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import unquote

from ....shared.errors import Unauthorized
from ...access.access_key import contains_key

LONGEST = 512
"""Characters of a credential that are looked at; keys are shorter, other services' are not."""


class Headers(Protocol):
    """A request's headers, whose names ignore case."""

    def getall(self, name: str, default: Sequence[str]) -> Sequence[str]: ...


def keys_in(headers: Headers) -> list[str]:
    """The keys in `Authorization: Bearer` and `x-api-key` (Anthropic's clients), in this order.

    Other schemes belong to a proxy, and are ignored.
    """
    found = []
    for value in headers.getall("Authorization", ()):
        scheme, _, rest = value.strip().partition(" ")
        if scheme.lower() == "bearer":
            found.append(rest.strip())
    found += [value.strip() for value in headers.getall("x-api-key", ())]
    return [key for key in found if 0 < len(key) <= LONGEST]


def refuse_key_in_url(raw_path: str) -> None:
    """Raises `Unauthorized` where a key stands in the URL, also in one that needs none."""
    if contains_key(raw_path) or ("%" in raw_path and contains_key(unquote(raw_path))):
        raise Unauthorized(
            "a key must not stand in a URL, since proxies and histories keep those: send it as "
            "`Authorization: Bearer`, and revoke this one",
            kind="key_in_url",
        )


def is_upgrade(headers: Mapping[str, str]) -> bool:
    """Whether a request asks for a WebSocket."""
    return headers.get("Upgrade", "").lower() == "websocket"
