"""The present daemons beside those of protocol version 7, the oldest, which speak as recorded.

Version 7 refuses unknown fields, so everything that is said to it has to fit its schema.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
from websockets.asyncio.server import ServerConnection, serve

from arriero.shared.messages import PROTOCOL_VERSION
from integration_tests.corpus import cases, generate, plain_cases
from integration_tests.daemons import DEADLINE, MODEL, Daemon, Fleet
from tests.shared.recorded_frames import Frame, Side, schema, session

REJECTED = json.dumps(
    {
        "type": "reject",
        "reason": "the balancer speaks protocol 7, the agent 8: install the same version on both",
        "retry": False,
    }
)
"""What a balancer of version 7 said to every other version."""

PATIENT = ('"heartbeat_timeout":5.0', '"heartbeat_timeout":300.0')
"""The test answers heartbeats only while it waits for a message."""

LEFT_OUT = {"priority": 0}
"""What version 7 said and took for granted where it was not said."""


def recorded(side: Side, *kinds: str, during: str, link: int = 1) -> list[Frame]:
    """What `side` said then."""
    return [
        frame
        for frame in session()
        if (frame.side, frame.during, frame.link) == (side, during, link) and frame.type in kinds
    ]


def first(side: Side, kind: str, *, link: int) -> str:
    return next(
        each.text for each in session() if (each.side, each.type, each.link) == (side, kind, link)
    )


def fitting(side: Side, text: str) -> Any:
    """The message in `text`, which version 7 would have understood."""
    message = json.loads(text)
    schema(side).validate(message)
    return message


class OldAgent:
    """An agent of version 7: answers each request with what was recorded for it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def join(self) -> Any:
        """Says hello, and gives what the balancer answers."""
        await self._socket.send_str(first("agent", "hello", link=1))
        return fitting("balancer", await self._socket.receive_str())

    async def next(self, kind: str) -> Any:
        """The next message of this kind; only heartbeats may come before."""
        while (message := fitting("balancer", await self._socket.receive_str()))["type"] != kind:
            assert message["type"] == "heartbeat", message
        return message

    async def serve(self, *, during: str) -> None:
        """Takes a request like that of the session, and says what the agent said."""
        start = await self.next("start")
        [asked] = recorded("balancer", "start", during=during)
        told = LEFT_OUT | start["request"]
        assert {name: told.get(name) for name in asked.message["request"]} == asked.message[
            "request"
        ]
        for frame in recorded("agent", "output", during=during):
            await self._socket.send_str(frame.text.replace(asked.message["id"], start["id"]))

    async def answer(self, kind: str) -> None:
        """Takes a query of this kind, and says what the agent said."""
        ask = await self.next("ask")
        asked = next(
            each.message
            for each in recorded("balancer", "ask", during="queries")
            if each.message["query"]["type"] == kind
        )
        assert ask["query"] == asked["query"]
        for frame in recorded("agent", "reply", during="queries"):
            if frame.message["id"] == asked["id"]:
                await self._socket.send_str(frame.text.replace(asked["id"], ask["id"]))


async def test_an_agent_of_the_version_before_serves(fleet: Fleet) -> None:
    await fleet.start_balancer()
    url = f"{fleet.management}/api/v1/agent-socket"
    async with fleet.http.ws_connect(url) as socket:
        agent = OldAgent(socket)
        assert (await agent.join())["protocol"] == 7
        thinking = next(c for c in cases() if c.body.get("thinking") and not c.body.get("tools"))
        calling = next(case for case in cases() if case.calls)
        for mark, case in {
            "plain": plain_cases()[0],
            "reasoning": thinking,
            "tool_call": calling,
        }.items():
            async with asyncio.TaskGroup() as group:
                answer = group.create_task(generate(fleet.http, fleet.inference, case.body))
                group.create_task(agent.serve(during=mark))
            found = answer.result()
            assert (found.text, found.reasoning) == (case.answer, case.reasoning)
            assert len(found.calls) == len(case.calls)
        async with asyncio.TaskGroup() as group:
            tokens = group.create_task(_detokenized(fleet, [5, 6, 7]))
            group.create_task(agent.answer("detokenize"))
        assert tokens.result() == "<tool_call></tool_call>!"
        for name in ("balancer", "fleet"):
            assert not [line for line in fleet.balancer.stderr if "invalid message" in line], name


async def _detokenized(fleet: Fleet, tokens: list[int]) -> str:
    url = f"{fleet.inference}/api/v1/detokenize"
    async with fleet.http.post(url, json={"tokens": tokens}) as response:
        text: str = (await response.json())["text"]
        return text


class OldBalancer:
    """A balancer of version 7. It rejects others, so a connection comes once for each version."""

    def __init__(self) -> None:
        self.links: asyncio.Queue[OldLink] = asyncio.Queue()
        self.num_rejected = 0
        self.url = ""

    async def link(self) -> "OldLink":
        """The next connection that was let in."""
        return await asyncio.wait_for(self.links.get(), DEADLINE)

    async def _take(self, socket: ServerConnection) -> None:
        hello = fitting("agent", str(await socket.recv()))
        if hello["protocol"] != 7:
            self.num_rejected += 1
            await socket.send(REJECTED)
            return
        await socket.send(first("balancer", "welcome", link=1).replace(*PATIENT))
        self.links.put_nowait(OldLink(socket, hello))
        await socket.wait_closed()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> "AsyncIterator[OldBalancer]":
        balancer = cls()
        async with serve(balancer._take, "127.0.0.1", 0, compression=None) as server:
            balancer.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield balancer


class OldLink:
    def __init__(self, socket: ServerConnection, hello: Any) -> None:
        self.socket = socket
        self.hello = hello

    async def next(self, *kinds: str) -> Any:
        """The next message of one of these kinds; heartbeats are answered."""
        while True:
            text = await asyncio.wait_for(self.socket.recv(), DEADLINE)
            message = fitting("agent", str(text))
            if message["type"] in kinds:
                return message
            if message["type"] == "heartbeat":
                await self.socket.send('{"type": "heartbeat"}')

    async def output(self) -> list[Any]:
        """All items of one request, up to its end."""
        items: list[Any] = []
        while not items or items[-1]["type"] not in ("ended", "refused"):
            items += (await self.next("output"))["items"]
        return items


def text_of(items: list[Any]) -> str:
    return "".join(item["text"] for item in items if item["type"] == "piece")


async def test_an_agent_serves_a_balancer_of_the_version_before() -> None:
    async with AsyncExitStack() as stack:
        balancer = await stack.enter_async_context(OldBalancer.open())
        agent = await Daemon.start("agent", "--balancer", balancer.url, "--threads", "1")
        stack.push_async_callback(agent.close)
        idle = await balancer.link()
        assert (idle.hello["slots"], balancer.num_rejected) == (0, PROTOCOL_VERSION - 7)

        [assign] = recorded("balancer", "assign", during="assigned", link=2)
        source = assign.message["assignment"]["source"]
        await idle.socket.send(assign.text.replace(source, MODEL.absolute().as_uri()))
        link = await balancer.link()
        assert link.hello["takes_over"] and link.hello["model"]["name"] == "wished"

        [start] = recorded("balancer", "start", during="assigned", link=3)
        await link.socket.send(start.text)
        items = await link.output()
        outputs = recorded("agent", "output", during="assigned", link=3)
        was = [item for frame in outputs for item in frame.message["items"]]
        assert text_of(items) == text_of(was)
        end, former = items[-1], was[-1]
        assert (end["finish_reason"], end["usage"]["completion_tokens"]) == (
            former["finish_reason"],
            former["usage"]["completion_tokens"],
        )

        ask = next(
            frame
            for frame in recorded("balancer", "ask", during="queries")
            if frame.message["query"]["type"] == "count_tokens"
        )
        await link.socket.send(ask.text)
        assert (await link.next("reply"))["result"] == {"type": "counted", "num_tokens": 20}

        [endless] = recorded("balancer", "start", during="cancel")
        [cancel] = recorded("balancer", "cancel", during="cancel")
        await link.socket.send(endless.text)
        await link.next("output")
        await link.socket.send(cancel.text)
        assert (await link.output())[-1]["finish_reason"] == "cancelled"
        assert await agent.terminate() == 0
