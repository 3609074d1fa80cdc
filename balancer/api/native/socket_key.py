"""The key of a WebSocket: from its header, or from its first call.

Browsers' WebSockets send no headers, so a socket may be opened without a key where one is needed.
Then its first call has to be `authenticate`, with the params `{"key": "ark_…"}`, and has to come
within `AUTHENTICATE_TIMEOUT`.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from aiohttp import web

from ....shared.errors import InvalidRequest, Unauthorized
from ...access.identity import Identity
from ...fleet.caller import Caller
from ..access.leases import Leases
from ..transport.callers import caller_of, held_by

AUTHENTICATE_TIMEOUT = 10.0
"""Seconds from the socket's start to its key."""

MAX_FIRST_FRAME = 4096
"""Bytes of a frame of somebody who has not shown a key yet."""


class SocketKey:
    """`caller` is who opened the socket, as far as is known; `error` why it may do nothing more."""

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
        """Whether the next call has to be `authenticate`."""
        return self._is_awaited

    def begin(self, on_end: Callable[[Unauthorized], None]) -> None:
        """The socket is open. `on_end` is called once if its key is no more, until `end`."""
        self._on_end = on_end
        self._open.enter_context(self._leases.lease(self._holder, self._ended))

    def end(self) -> None:
        """The socket is closed."""
        self._open.close()

    def check(self) -> None:
        """Before a call. Raises `Unauthorized`."""
        if self._is_awaited:
            self.refuse(
                "this socket shows no key: send it in a header, or make the first call "
                '`{"method": "authenticate", "params": {"key": "ark_…"}}`'
            )
        if self.error is not None:
            raise self.error

    def check_size(self, num_bytes: int) -> None:
        """Before a frame is read. Raises `Unauthorized` for a large one without a key."""
        if self._is_awaited and num_bytes > MAX_FIRST_FRAME:
            self.check()

    def refuse(self, message: str) -> None:
        """Refuse all further calls of the socket. Raises `Unauthorized`."""
        self.error = Unauthorized(message, kind="no_key")
        raise self.error

    async def show(self, params: dict[str, Any]) -> dict[str, object]:
        """The result of `authenticate`. Raises `InvalidRequest`, `Unauthorized`, `Forbidden`."""
        match params:
            case {"key": str(key), **rest} if not rest:
                holder = await self._identify(key)
            case _:
                raise InvalidRequest('`authenticate` takes `{"key": "ark_…"}`', field="key")
        if self._is_awaited:
            self._take(holder)
        elif holder != self._holder:
            raise InvalidRequest("the socket belongs to another key; open another socket")
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
