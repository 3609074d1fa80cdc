"""The access key of a WebSocket: from its header, or from its first call.

Browsers send no headers with WebSockets. So a client may open a socket without a key although calls
need one. The first call must then be `authenticate`, with the params `{"key": "ark_…"}`, within
`AUTHENTICATE_TIMEOUT` seconds.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from aiohttp import web

from ....shared.errors import InvalidRequest, Unauthorized
from ...access.identity import Identity
from ...fleet.caller import Caller
from ..guard import Leases
from ..transport.callers import caller_of, held_by

AUTHENTICATE_TIMEOUT = 10.0
"""Seconds from the socket's start within which its key must come."""

MAX_FIRST_FRAME = 4096
"""Maximum bytes of a frame before the client has sent a key."""


class SocketKey:
    """The access key of one socket.

    `caller` is the sender of calls, once known; `error` says why all further calls are refused.
    """

    def __init__(self, request: web.Request, leases: Leases) -> None:
        self.caller: Caller = caller_of(request)
        self.error: Unauthorized | None = None
        self._leases = leases
        self._holder = leases.holder(request)
        self._is_awaited = self._holder is None and leases.needs_key
        self._open = ExitStack()
        self._on_end: Callable[[Unauthorized], None] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the next call must be `authenticate`."""
        return self._is_awaited

    def begin(self, on_end: Callable[[Unauthorized], None]) -> None:
        """Begin to use the key of an open socket.

        `on_end` is called once if the key ends before `end`.
        """
        self._on_end = on_end
        self._open.enter_context(self._leases.lease(self._holder, self._ended))

    def end(self) -> None:
        """Stop using the key, because the socket is closed."""
        self._open.close()

    def check(self) -> None:
        """Check that a call is allowed. Raises `Unauthorized`."""
        if self._is_awaited:
            self.refuse(
                "this WebSocket has sent no access key: send it in a header, or make the "
                'first call `{"method": "authenticate", "params": {"key": '
                '"ark_…"}}`'
            )
        if self.error is not None:
            raise self.error

    def check_size(self, num_bytes: int) -> None:
        """Check the size of a frame before it is read.

        Raises `Unauthorized` for a large frame if no key was sent yet.
        """
        if self._is_awaited and num_bytes > MAX_FIRST_FRAME:
            self.check()

    def refuse(self, message: str) -> None:
        """Refuse all further calls of the socket. Raises `Unauthorized`."""
        self.error = Unauthorized(message, kind="no_key")
        raise self.error

    async def show(self, params: dict[str, Any]) -> dict[str, object]:
        """Take the key of an `authenticate` call, and return the result.

        Raises `InvalidRequest`, `Unauthorized` or `Forbidden`.
        """
        match params:
            case {"key": str(key), **rest} if not rest:
                holder = await self._identify(key)
            case _:
                raise InvalidRequest('`authenticate` takes `{"key": "ark_…"}`', field="key")
        if self._is_awaited:
            self._take(holder)
        elif holder != self._holder:
            raise InvalidRequest(
                "the WebSocket was opened with another access key; open a new WebSocket"
            )
        name, role = (None, None) if holder is None else (holder.name, holder.role)
        return {"authenticated": True, "name": name, "role": role}

    async def _identify(self, key: str) -> Identity | None:
        try:
            return await self._leases.identify(key)
        except Unauthorized as error:
            if self._is_awaited:
                self.error = error
            raise

    def _take(self, holder: Identity | None) -> None:
        self._is_awaited = False
        if holder is None:
            return
        self._holder = holder
        self.caller = held_by(self.caller, holder)
        self._open.enter_context(self._leases.lease(holder, self._ended))

    def _ended(self, error: Unauthorized) -> None:
        self.error = error
        if self._on_end is not None:
            self._on_end(error)
