"""Whose key a request came with, and what is open for as long as that key is good."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from aiohttp import web

from ....shared.errors import Unauthorized
from ...access.access import Access
from ...access.identity import Identity
from ..transport.callers import identity_key
from .permissions import Needs, check_role


class Leases:
    """Holders of keys, and what they have open for long: sockets and streams of events."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def holder(self, request: web.Request) -> Identity | None:
        """Who holds the key of `request`; `None` where no key is needed."""
        return request.get(identity_key)

    @property
    def needs_key(self) -> bool:
        """Whether a key is needed to come in."""
        return not self._access.is_open

    async def identify(self, key: str) -> Identity | None:
        """Who holds `key`, which came over an open socket of whoever calls models.

        `None` where no key is needed. Raises `Unauthorized`, or `Forbidden` for another role.
        """
        holder = await self._access.admitted([key])
        if holder is not None:
            check_role(holder, Needs.CALL)
        return holder

    def lease(
        self, holder: Identity | None, on_end: Callable[[Unauthorized], None]
    ) -> AbstractContextManager[None]:
        """Inside, `on_end` is called if `holder` may no longer be here."""
        return self._access.lease(holder, on_end)
