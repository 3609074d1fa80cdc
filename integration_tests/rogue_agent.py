"""An agent that says whatever a test wants said, to a real balancer, over the agents' socket.

For all tests of what an agent may do to others. Nothing is checked or repaired on the way out:
messages are dicts or values of `shared.messages`, `send_bytes` puts anything on the wire, and
`dial` takes any hello. A rogue sends heartbeats, unless it is `mute`, and reads what comes.

    async with RogueAgent.dial(fleet, name="rogue", model="its-own") as rogue:
        asking = group.create_task(ask(fleet, model="its-own"))
        start = await rogue.next("start")
        await rogue.items(piece(start, "a"), ended(start, rates={"decode_tokens_per_second": 1e9}))
        assert "bad_messages" in await rogue.until_closed()
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from arriero.balancer.fleet.runtime.agent_socket import PATH
from arriero.shared.messages import PROTOCOL_VERSION, FromAgent, encode_from_agent
from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import DEADLINE, MODEL, Fleet

WITHIN = DEADLINE
"""Seconds after which what a balancer does at once counts as never."""

Message = Mapping[str, Any]


def model_info(name: str = MODEL.stem, **fields: Any) -> dict[str, Any]:
    """A model that an agent says it serves; by default that of the real agents."""
    sizes = {"parameters": 1, "size_bytes": 1, "context_size": LONG_CONTEXT}
    return {"name": name, "architecture": "none", **sizes, **fields}


def hello(name: str = "rogue", **fields: Any) -> dict[str, Any]:
    """A hello that is accepted. `fields` replace or add some; `None` leaves one out."""
    whole = {
        "type": "hello",
        "protocol": PROTOCOL_VERSION,
        "agent_id": f"id-of-{name}",
        "name": name,
        "version": "test",
        "slots": 4,
        "model": model_info(),
        **fields,
    }
    return {key: value for key, value in whole.items() if value is not None}


def status(**fields: Any) -> dict[str, Any]:
    """A status that is accepted."""
    whole = {"type": "status", "slots": 4, "accepting": True, "model": model_info(), **fields}
    return {key: value for key, value in whole.items() if value is not None}


def piece(start: Message, text: str = "a", **fields: Any) -> dict[str, Any]:
    """An item: a text of one token for the request of `start`."""
    return {"type": "piece", "id": start["id"], "text": text, "tokens": [7], **fields}


def ended(start: Message, **fields: Any) -> dict[str, Any]:
    """An item: the request of `start` has ended well."""
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    end = {"type": "ended", "id": start["id"], "finish_reason": "stop", "usage": usage, "rates": {}}
    return {**end, **fields}


def refused(start: Message, code: str, **fields: Any) -> dict[str, Any]:
    """An item: the request of `start` ended with an error."""
    error = {"code": code, "message": "said by a rogue", "retryable": False, **fields}
    return {"type": "refused", "id": start["id"], "error": error}


class RogueAgent:
    """One connection of an agent to a balancer; made by `dial`."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.answer: dict[str, Any] = {}
        """What the balancer said to the hello: a `welcome` or a `reject`."""
        self.given: list[str] = []
        """The ids of all that it was given to answer, oldest first."""
        self._received: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    @classmethod
    @asynccontextmanager
    async def dial(
        cls,
        fleet: Fleet,
        name: str = "rogue",
        *,
        headers: Mapping[str, str] | None = None,
        mute: bool = False,
        address: str | None = None,
        **fields: Any,
    ) -> AsyncIterator[Self]:
        """Connects, says `hello(name, **fields)`, and waits for the answer.

        `mute`: it sends nothing by itself. It comes from `address`, if there is one. Leaving cuts
        the connection.
        """
        async with cls.connect(fleet, headers=headers, mute=mute, address=address) as rogue:
            await rogue.send(hello(name, **fields))
            rogue.answer = await rogue.next("welcome", "reject")
            yield rogue

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        fleet: Fleet,
        *,
        headers: Mapping[str, str] | None = None,
        mute: bool = False,
        address: str | None = None,
    ) -> AsyncIterator[Self]:
        """Connects and says nothing."""
        url = f"ws://{fleet.balancer.ready['management']}{PATH}"
        socket = await connect(
            url,
            additional_headers=headers,
            compression=None,
            proxy=None,
            ping_interval=None,
            max_size=None,
            local_addr=None if address is None else (address, 0),
        )
        rogue = cls(socket)
        tasks = [asyncio.create_task(rogue._read())]
        if not mute:
            tasks.append(asyncio.create_task(rogue._live()))
        try:
            yield rogue
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            socket.transport.abort()

    async def send(self, message: Message | FromAgent) -> None:
        """Sends one message as a frame of text; a dict as it stands."""
        is_dict = isinstance(message, Mapping)
        text = json.dumps(message).encode() if is_dict else encode_from_agent(message)
        await self.send_bytes(text)

    async def send_bytes(self, data: bytes, *, is_text: bool = True) -> None:
        """Sends one frame of any bytes."""
        await self.socket.send(data, text=is_text)

    async def items(self, *items: Message) -> None:
        """Sends items of requests, as one step's output."""
        await self.send({"type": "output", "items": items})

    async def next(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these kinds; those before it are dropped."""
        async with asyncio.timeout(WITHIN):
            while (message := await self._received.get()) is not None:
                if message["type"] in kinds:
                    return message
        raise AssertionError(f"closed before {' or '.join(kinds)}: {self.socket.close_reason}")

    async def until_closed(self) -> str:
        """Waits until the balancer closes the connection; the reason that it gives."""
        async with asyncio.timeout(WITHIN):
            await self.socket.wait_closed()
        return self.socket.close_reason or ""

    async def _read(self) -> None:
        try:
            async for frame in self.socket:
                if isinstance(frame, str):
                    message = json.loads(frame)
                    if message["type"] in ("start", "ask", "read_log"):
                        self.given.append(message["id"])
                    self._received.put_nowait(message)
        except ConnectionClosed:
            pass  # `until_closed` and `next` say so, with the reason
        self._received.put_nowait(None)

    async def _live(self) -> None:
        """Says that it lives, as agents without news do."""
        try:
            while True:
                await asyncio.sleep(1)
                await self.send({"type": "heartbeat"})
        except ConnectionClosed:
            pass  # as above


def codes_of(issues: Iterable[Message]) -> set[str]:
    """The codes of an agent's issues, as the management API shows them."""
    return {issue["code"] for issue in issues}
