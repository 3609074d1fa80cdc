"""Many requests over one WebSocket (JSON-RPC 2.0), each with its own stream of events."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Self

import aiohttp
from typing_extensions import Unpack

from .answers import Answer, Event, Failed, Token, done_of, event_of, put_together
from .errors import RequestFailed, Unreachable
from .requests import GenerateOptions

MAX_UNREAD = 1024
"""Maximum unread events of a call; later tokens are merged into the last event."""


class _Call:
    """One call: its unread events, and its result."""

    def __init__(self) -> None:
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self.result.add_done_callback(lambda _: self._news.set())

    def put(self, event: Event) -> None:
        last = self._events[-1] if len(self._events) >= MAX_UNREAD else None
        if isinstance(event, Token) and isinstance(last, Token) and _is_alike(event, last):
            self._events[-1] = replace(last, text=last.text + event.text)
        else:
            self._events.append(event)
        self._news.set()

    async def next(self) -> Event | None:
        """Return the next event; `None` after the last one.

        Raises the error that ended the call.
        """
        while not self._events:
            if self.result.done():
                self.result.result()
                return None
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()


class Socket:
    """The requests of one connection, which ends with its context.

    >>> async with Client() as client, client.socket() as socket:
    ...     answers = await asyncio.gather(
    ...         socket.generate(prompt="one", max_tokens=2),
    ...         socket.generate(prompt="two", max_tokens=3),
    ...     )
    ...     print([answer.usage.completion_tokens for answer in answers])
    [2, 3]
    """

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self._connection = connection
        self._ids = count(1)
        self._calls: dict[str, _Call] = {}
        self._is_open = True

    @classmethod
    @asynccontextmanager
    async def over(cls, connection: aiohttp.ClientWebSocketResponse) -> AsyncIterator[Self]:
        """Open a socket over an open connection, and read it until the context ends."""
        socket = cls(connection)
        reader = asyncio.create_task(socket._read())
        try:
            yield socket
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def generate(self, **request: Unpack[GenerateOptions]) -> Answer:
        """Return a whole answer."""
        events = [event async for event in self.stream(**request)]
        return put_together("", events)

    async def stream(self, **request: Unpack[GenerateOptions]) -> AsyncGenerator[Event, None]:
        """Stream an answer. Closing the iterator cancels the rest of it."""
        id, call = await self._begin("generate", {**request, "stream": True})
        try:
            while (event := await call.next()) is not None:
                yield event
            yield done_of(call.result.result())
        finally:
            await self._end(id, call)

    async def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Return the result of any method, such as `embed`. Events of the method are ignored."""
        id, call = await self._begin(method, params or {})
        try:
            return await call.result
        finally:
            await self._end(id, call)

    async def ping(self) -> None:
        """Wait for the balancer's pong, also while streams run."""
        await self.call("ping")

    async def _begin(self, method: str, params: dict[str, Any]) -> tuple[str, _Call]:
        if not self._is_open:
            raise Unreachable("the socket is closed")
        id = f"c{next(self._ids)}"
        call = self._calls[id] = _Call()
        try:
            await self._send(id, method, params)
        except (aiohttp.ClientError, ConnectionError) as error:
            del self._calls[id]
            raise Unreachable(f"the socket broke: {error}") from error
        return id, call

    async def _end(self, id: str, call: _Call) -> None:
        del self._calls[id]
        if not call.result.done():
            call.result.cancel()
            if self._is_open and not self._connection.closed:
                await self._send(None, "cancel", {"id": id})

    async def _send(self, id: str | None, method: str, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        await self._connection.send_str(json.dumps(message | ({"id": id} if id else {})))

    async def _read(self) -> None:
        try:
            async for message in self._connection:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._take(json.loads(message.data))
        finally:
            self._is_open = False
            for call in self._calls.values():
                if not call.result.done():
                    call.result.set_exception(Unreachable("the socket closed"))
                    call.result.exception()  # whoever waits gets it; nobody has to

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("method") == "event":
            call = self._calls.get(message["params"]["id"])
            event = event_of(message["params"])
            if call is not None and event is not None and not isinstance(event, Failed):
                call.put(event)
            return
        call = self._calls.get(str(message.get("id")))
        if call is None or call.result.done():
            return
        if "error" in message:
            call.result.set_exception(_rpc_failure(message["error"]))
            call.result.exception()
        else:
            call.result.set_result(message["result"])


def _is_alike(one: Token, other: Token) -> bool:
    has_no_details = one.logprobs is None and other.logprobs is None
    return has_no_details and (one.kind, one.item) == (other.kind, other.item)


def _rpc_failure(error: dict[str, Any]) -> RequestFailed:
    data = error.get("data")
    details = data if isinstance(data, dict) else {}
    return RequestFailed(
        str(details.get("code", error.get("code"))),
        str(error.get("message")),
        is_retryable=details.get("retryable") is True,
    )
